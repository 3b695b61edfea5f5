"""The formula for the bytes that a forward pass keeps, against the storages that a real one saves."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bertbench.config import System, load_system
from bertbench.data.store.columns import Integers
from bertbench.loading.batch import Batch
from bertbench.model.attention import Attention, attention
from bertbench.model.bert import Bert
from bertbench.model.compiled import compile_pieces
from bertbench.model.encoder import EncoderLayer
from bertbench.model.fp8_linear import CONVERTED, Fp8Linear, multiply_in_fp8
from bertbench.model.fp8_scaling import DelayedScaling
from bertbench.model.sequences import Sequences
from bertbench.plan.activations import embedding_bytes, head_bytes, layer_bytes
from bertbench.plan.memory import activation_bytes
from bertbench.plan.step_load import Microbatch
from tests.compiling import compiled_by
from tests.conftest import Tiny
from tests.plan.saved import batch_of_lengths, saved_by_flash, saved_bytes

LENGTHS = np.array([67, 67, 67])  # 10 of 67 tokens are masked: Wikipedia's share to four digits
SHAPE = (
    "model.hidden_size=48", "model.attention_heads=3", "model.feed_forward_size=80", "model.vocab_size=101",
    "model.max_positions=67",
)  # fmt: skip
DROPOUT = ("model.hidden_dropout=0.1", "model.attention_dropout=0.1")
IN_FP32, IN_BF16 = "precision.compute=fp32", "precision.compute=bf16"


def hidden_states(system: System, lengths: Integers) -> Tensor:
    return torch.empty(int(lengths.sum()), system.model.hidden_size, requires_grad=True)


@pytest.mark.parametrize(
    ("format_", "dropout", "lengths"),
    [
        (IN_FP32, DROPOUT, LENGTHS),
        (IN_BF16, DROPOUT, LENGTHS),
        (IN_BF16, (), LENGTHS),
        (IN_BF16, DROPOUT, np.array([64, 64])),
    ],
    ids=["fp32", "bf16", "without dropout", "whole rows"],
)
def test_a_layer_keeps_exactly_the_bytes_of_the_formula(
    tiny: Tiny, format_: str, dropout: tuple[str, ...], lengths: Integers
) -> None:
    system = tiny(*SHAPE, *dropout, format_)
    layer = EncoderLayer(system.model.shape())
    hidden_TD = hidden_states(system, lengths)
    kept = saved_bytes(system, layer, lambda: layer(hidden_TD, Sequences.of(lengths)))
    assert layer_bytes(system, Microbatch.of_lengths(lengths)) == kept


@pytest.mark.parametrize("format_", [IN_FP32, IN_BF16])
def test_a_model_keeps_the_bytes_of_its_layers_embeddings_and_heads(tiny: Tiny, format_: str) -> None:
    system = tiny(*SHAPE, *DROPOUT, format_, "model.layers=3")
    model, batch = Bert(system.model.shape()), batch_of_lengths(LENGTHS)
    kept = saved_bytes(system, model, lambda: loss(model, batch))
    # what remains are numbers of token ids and labels, which a batch holds anyway
    assert activation_bytes(system, Microbatch.of_lengths(LENGTHS)) == pytest.approx(kept, rel=0.005)


def test_embeddings_keep_the_bytes_of_the_formula(tiny: Tiny) -> None:
    system = tiny(*SHAPE, *DROPOUT)
    embeddings = Bert(system.model.shape()).embeddings
    ids_T = torch.zeros(201, dtype=torch.int32)
    kept = saved_bytes(system, embeddings, lambda: embeddings(ids_T, ids_T, ids_T))
    assert embedding_bytes(system, Microbatch.of_lengths(LENGTHS)) == kept - ids_T.nbytes


def loss(model: Bert, batch: Batch) -> Tensor:
    return model.loss_sums(*batch.inputs, batch.labels).weighted(1, 1)


GPU = ("launch.device=cuda", "hardware.accelerators_per_node=2", "compute.compile=none")


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        (saved_by_flash, (IN_BF16, *DROPOUT)),
        (saved_by_flash, (IN_BF16,)),
        (attention, (IN_BF16, "model.attention_heads=12", *DROPOUT)),  # heads of 4, which flash doesn't take
        (attention, (IN_FP32, *DROPOUT)),
    ],
)
def test_a_layer_on_a_gpu_keeps_exactly_the_bytes_of_the_formula(
    tiny: Tiny, kernel: Attention, settings: tuple[str, ...]
) -> None:
    system = tiny(*SHAPE, *GPU, *settings)
    lengths = np.array([53, 29, 7])  # unequal ones share no product: see plain_attention
    layer = EncoderLayer(system.model.shape(), kernel)
    hidden_TD = hidden_states(system, lengths)
    kept = saved_bytes(system, layer, lambda: layer(hidden_TD, Sequences.of(lengths)))
    assert layer_bytes(system, Microbatch.of_lengths(lengths)) == kept


@pytest.mark.parametrize(("kernel", "heads"), [(saved_by_flash, 3), (attention, 12)])  # flash takes no heads of 4
def test_a_layer_in_fp8_keeps_inputs_and_matrices_of_a_byte_a_number(tiny: Tiny, kernel: Attention, heads: int) -> None:
    system = tiny(*SHAPE, *GPU, *DROPOUT, "precision.compute=fp8", f"model.attention_heads={heads}")
    lengths = np.array([43, 29, 8])  # 80 tokens: transposed inputs hold a multiple of 16
    layer = EncoderLayer(system.model.shape(), kernel)
    scaling = DelayedScaling(4, torch.device("cpu"))
    for name, scales in zip(CONVERTED, scaling.layers, strict=True):
        setattr(layer, name, Fp8Linear(getattr(layer, name), scales))
    hidden_TD = hidden_states(system, lengths)
    kept = saved_bytes(system, layer, lambda: layer(hidden_TD, Sequences.of(lengths)))
    scales = 4 * 9 * 4  # of each product's operands, with their inverses and amaxes, in fp32
    assert layer_bytes(system, Microbatch.of_lengths(lengths)) == kept - scales


@pytest.mark.parametrize(
    ("kernel", "settings"), [(saved_by_flash, (IN_BF16, *DROPOUT)), (attention, (IN_FP32, *DROPOUT))]
)
def test_a_model_on_a_gpu_keeps_the_bytes_of_the_formula(
    tiny: Tiny, kernel: Attention, settings: tuple[str, ...]
) -> None:
    system = tiny(*SHAPE, *GPU, *settings, "model.layers=3", "model.max_positions=268")
    lengths = np.array([268, 134, 67])  # T^2 / P sequences are 2.2, not 3
    model, batch = Bert(system.model.shape(), kernel), batch_of_lengths(lengths)
    kept = saved_bytes(system, model, lambda: loss(model, batch))
    assert activation_bytes(system, Microbatch.of_lengths(lengths)) == pytest.approx(kept, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_compiled_model_on_a_gpu_keeps_the_bytes_of_the_formula(tiny: Tiny, precision: str) -> None:
    system = tiny(
        *SHAPE, *GPU, *DROPOUT, f"precision.compute={precision}", "precision.residual=bf16", "compute.compile=default",
        "model.layers=4", "model.max_positions=268",
    )  # fmt: skip
    lengths = np.array([268, 145, 67])  # 480 tokens: transposed inputs in fp8 hold a multiple of 16
    model, batch = Bert(system.model.shape(), saved_by_flash), batch_of_lengths(lengths)
    if precision == "fp8":
        multiply_in_fp8(model, run_backward=lambda: None)
    model.keep_residual(system.precision.residual)
    with compiled_by("aot_eager_decomp_partition"):  # as Inductor chooses what to keep, without its code
        compile_pieces(model)
        model.hand_to_heads(torch.bfloat16)
        kept = saved_bytes(system, model, lambda: loss(model, batch))
    assert activation_bytes(system, Microbatch.of_lengths(lengths)) == pytest.approx(kept, rel=0.02)


@pytest.mark.parametrize(("precision", "of_a_feature"), [("bf16", 32), ("fp8", 27)])
def test_a_compiled_layer_of_bert_large_keeps_32_bytes_a_feature_and_in_fp8_27(
    precision: str, of_a_feature: int
) -> None:
    system = load_system("dgxa100_n1", [f"precision.compute={precision}"])
    a_token = layer_bytes(system, Microbatch(2.0, 1.0)) - layer_bytes(system, Microbatch(1.0, 1.0))
    ones = 2 * 8 if precision == "bf16" else 0
    # two LayerNorms' scales are 8 bytes, the flash kernel's sums 4 for each of 16 heads
    assert a_token == of_a_feature * 1024 + ones + 8 + 64


def test_bert_large_keeps_korthikantis_34_bytes_and_4_for_layernorms_in_fp32() -> None:
    system = load_system("dgxa100_n1", ["compute.compile=none"])
    a_token = layer_bytes(system, Microbatch(2.0, 1.0)) - layer_bytes(system, Microbatch(1.0, 1.0))
    # two LayerNorms' moments are 16 bytes, the flash kernel's sums 4 for each of 16 heads
    assert a_token == (34 + 4) * 1024 + 16 + 64


def test_tensor_parallel_ranks_share_products_and_with_sequence_the_rest() -> None:
    split = ("parallel.tensor=8", "clip.mode=after", "communication.compression=none", "optimizer.sharded=false")
    microbatch = Microbatch(512.0, 512.0**2)
    tensor, sequence = (
        layer_bytes(load_system("dgxa100_n1", [*split, *words]), microbatch)
        for words in ((), ("parallel.sequence=true",))
    )
    hidden, matrices = 1024, 12 * 1024**2
    # Korthikanti's equation 2: 10 + 24 / t; LayerNorms' inputs in fp32 add 4
    a_token = (10 + 4 + 24 / 8) * hidden + 16 + 64 / 8
    assert tensor == 512 * a_token + 2 * matrices / 8
    shared = 10 * hidden + 16  # LayerNorms' inputs and moments, and masks, of which a rank keeps an eighth
    assert sequence == tensor - 512 * shared * 7 / 8


def test_heads_keep_scores_of_masked_tokens_only() -> None:
    system = load_system("dgxa100_n1", ["compute.compile=none"])
    kept = head_bytes(system, Microbatch(20_000.0, 20_000.0 * 500)) - head_bytes(system, Microbatch(10_000.0, 5e6))
    # of each masked token: three inputs of 16 bits, LayerNorm's in fp32, its moments, and log softmax in fp32
    masked = 3 * 2 * 1024 + 4 * 1024 + 8 + 4 * system.model.vocab_size
    assert kept == pytest.approx(1493 * masked + 20 * 2 * 2 * 1024)
