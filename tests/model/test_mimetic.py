import pytest
import torch

from bertbench.model.bert import Bert
from bertbench.model.mimetic import imitate_training
from bertbench.model.shape import BertShape

POSITIONS, HEADS = 9, 4


def test_heads_first_attend_one_and_two_positions_away() -> None:
    model = Bert(BertShape(37, 128, 2, HEADS, 48, POSITIONS))
    model.initialize(torch.Generator().manual_seed(1))
    drawn = {name: weight.clone() for name, weight in model.state_dict().items()}
    imitate_training(model)
    position_PD = model.embeddings.position.weight
    for layer in model.encoder_layers():
        query_DD, key_DD, _ = layer.qkv.weight.chunk(3)
        heads = zip(query_DD.chunk(HEADS), key_DD.chunk(HEADS), (-1, 1, -2, 2), strict=True)
        for query_KD, key_KD, distance in heads:
            scores_PP = (position_PD @ query_KD.T) @ (position_PD @ key_KD.T).T
            found = {place: int(scores_PP[place].argmax()) - place for place in range(2, POSITIONS - 2)}
            assert set(found.values()) == {distance}, found
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, drawn[name])}
    attention = {"embeddings.position.weight", "layers.0.qkv.weight", "layers.1.qkv.weight"}
    assert changed == attention | {"masked_lm.dense.weight"}
    state_D = torch.arange(128.0)
    assert torch.equal(model.masked_lm.dense(state_D), state_D)
    assert position_PD.square().mean().sqrt().item() == pytest.approx(0.02, rel=1e-5)  # as large as drawn ones
