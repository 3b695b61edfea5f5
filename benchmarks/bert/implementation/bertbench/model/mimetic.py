"""Start from weights that imitate trained ones: mimetic initialization (Trockman and Kolter 2023).

Heads attend to neighbouring tokens from the first step. Position embeddings start as sines and cosines, for which a
shift by s positions is a rotation R(s) (Vaswani et al. 2017, section 3.5). A head's key matrix starts as the product of
its query matrix Q and that rotation, so that its scores are largest s positions away:
Q p(i) . Q R(s) p(j) = Q p(i) . Q p(j - s).

The masked-LM head's dense layer starts as the identity, so that hidden states first reach the word embeddings
unchanged.
Shapes: P positions, D hidden size, K of a head, F = D / 2 frequencies.
"""

import math

import torch
from torch import Tensor, nn

from bertbench.model.bert import Bert

_SHARPNESS = 2.5
"""Factor on initial queries and keys; it raises the scores of tokens s positions away by its square."""


@torch.no_grad()
def imitate_training(model: Bert) -> None:
    """Let each layer's first head start by attending to the previous token, its second to the next, and so on outwards.

    This overwrites position embeddings, key matrices and the masked-LM head's dense layer of an initialized model. Its
    hidden size must be even.
    """
    if not model.masked_lm.dense.weight.is_meta:  # meta tensors belong to another rank
        nn.init.eye_(model.masked_lm.dense.weight)
    position_PD = model.embeddings.position.weight
    positions, hidden = position_PD.shape
    frequencies_F = math.pi * torch.arange(hidden // 2) / (hidden // 2)  # up to pi: positions are nearly orthogonal
    angles_PF = torch.arange(positions)[:, None] * frequencies_F
    amplitude = math.sqrt(2) * model.shape.initializer_range
    position_PD.copy_(amplitude * torch.cat((angles_PF.sin(), angles_PF.cos()), 1))
    for layer in model.encoder_layers():
        if layer.qkv.weight.is_meta:
            continue
        query_DD, key_DD, _ = layer.qkv.weight.chunk(3)
        query_DD *= _SHARPNESS
        for head, (query_KD, key_KD) in enumerate(
            zip(query_DD.chunk(layer.heads), key_DD.chunk(layer.heads), strict=True)
        ):
            distance = head // 2 + 1
            key_KD.copy_(query_KD @ _rotation(frequencies_F * (distance if head % 2 else -distance)))


def _rotation(angles_F: Tensor) -> Tensor:
    """Return the [D, D] matrix that turns each frequency's pair of sine and cosine back by its angle."""
    sine_FF, cosine_FF = torch.diag(angles_F.sin()), torch.diag(angles_F.cos())
    return torch.cat((torch.cat((cosine_FF, -sine_FF), 1), torch.cat((sine_FF, cosine_FF), 1)))
