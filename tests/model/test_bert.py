import numpy as np
import torch
from torch import Tensor

from bertbench.model.bert import Bert, BertInputs
from bertbench.model.loss import Scores
from bertbench.model.sequences import EqualLengths, Sequences
from bertbench.model.shape import BertShape

TINY = BertShape(
    vocab_size=41, hidden_size=14, layers=2, attention_heads=2, feed_forward_size=23, max_positions=17,
    hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def tiny_bert() -> Bert:
    model = Bert(TINY)
    model.initialize(torch.Generator().manual_seed(3))
    return model


def scores(model: Bert, tokens: Tensor, lengths: list[int]) -> Scores:
    positions = torch.cat([torch.arange(length) for length in lengths])
    sequences = Sequences.of(np.array(lengths))
    return model(BertInputs(tokens, torch.zeros_like(tokens), positions, sequences, torch.arange(len(tokens))))


def test_bert_large_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        model = Bert(BertShape())
    assert sum(parameter.numel() for parameter in model.parameters()) == 336_232_258


def test_sequences_of_equal_length_are_grouped() -> None:
    layout = Sequences.of(np.array([7, 7, 5, 3, 3, 3]))
    assert layout.cu_seqlens_S1.tolist() == [0, 7, 14, 19, 22, 25, 28]
    assert layout.groups == (EqualLengths(0, 2, 7), EqualLengths(14, 1, 5), EqualLengths(19, 3, 3))


def test_a_batch_has_the_scores_of_its_single_sequences() -> None:
    model = tiny_bert().eval()
    lengths = [11, 7, 7, 2]
    tokens = torch.randint(41, (27,), generator=torch.Generator().manual_seed(1))
    together = scores(model, tokens, lengths).masked_lm_MV
    alone = [scores(model, part, [len(part)]).masked_lm_MV for part in tokens.split(lengths)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=1e-5)  # other matrix sizes, other rounding


def test_omitting_outputs_that_no_head_reads_changes_neither_scores_nor_gradients() -> None:
    model = tiny_bert().double()
    lengths, masked_at = [11, 7, 7, 2], torch.tensor([0, 3, 10, 14, 19, 26])  # 0 is a [CLS] token: read twice
    tokens = torch.randint(41, (27,), generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(length) for length in lengths])
    sequences = Sequences.of(np.array(lengths))
    hidden = model.embeddings(tokens, torch.zeros_like(tokens), positions)
    for layer in model.layers:
        hidden = layer(hidden, sequences)
    whole = Scores(
        model.masked_lm(hidden[masked_at], model.embeddings.word.weight),
        model.next_sentence(model.pooler(hidden[[0, 11, 18, 25]]).tanh()),
    )
    lean = model(BertInputs(tokens, torch.zeros_like(tokens), positions, sequences, masked_at))
    torch.testing.assert_close(lean, whole, atol=1e-13, rtol=1e-12)
    weights = [torch.randn(part.shape, generator=torch.Generator().manual_seed(2)) for part in whole]
    gradients = [
        torch.autograd.grad(sum((part * by).sum() for part, by in zip(parts, weights, strict=True)), model.parameters())
        for parts in (lean, whole)
    ]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-11)


def test_dropout_acts_in_training_only() -> None:
    model = Bert(BertShape(**{**vars(TINY), "hidden_dropout": 0.5, "attention_dropout": 0.5}))
    model.initialize(torch.Generator().manual_seed(3))
    tokens = torch.arange(12)
    assert not torch.equal(scores(model, tokens, [12]).masked_lm_MV, scores(model, tokens, [12]).masked_lm_MV)
    model.eval()
    assert torch.equal(scores(model, tokens, [12]).masked_lm_MV, scores(model, tokens, [12]).masked_lm_MV)
