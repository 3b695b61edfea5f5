import subprocess
import sys

import pytest
import torch
from torch import nn

from bertbench.common.errors import ConfigError
from bertbench.model.arithmetic import set_arithmetic
from bertbench.model.bert import Bert
from bertbench.model.precision import computing
from bertbench.model.shape import BertShape
from tests.model.padded import sequences_on

CPU = torch.device("cpu")
SHAPE = BertShape(41, 32, 2, 2, 48, 17, hidden_dropout=0.0, attention_dropout=0.0)


def bert() -> Bert:
    model = Bert(SHAPE)
    model.initialize(torch.Generator().manual_seed(3))
    return model


def test_fp8_without_torchao_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.float8", None)  # as if it were not installed
    with pytest.raises(ConfigError, match=r"needs torchao.*install bertbench\[fp8\], or use bf16"):
        set_arithmetic(bert(), CPU, "fp8", "none")


def test_fp8_refuses_sizes_that_its_products_do_not_take() -> None:
    model = Bert(BertShape(41, 24, 1, 2, 48, 17))
    with pytest.raises(ConfigError, match="hidden and feed-forward size 24 and 48 must be multiples of 16"):
        set_arithmetic(model, CPU, "fp8", "none")


@pytest.mark.slow  # importing torchao takes seconds
def test_fp8_is_for_the_encoder_s_products_and_close_to_fp32() -> None:
    pytest.importorskip("torchao")
    model, exact = bert(), bert()
    before = list(model.parameters())
    set_arithmetic(model, CPU, "fp8", "none")
    assert all(one is other for one, other in zip(model.parameters(), before, strict=True))
    assert type(model.layers[0].qkv) is not nn.Linear
    assert type(model.masked_lm.dense) is type(model.pooler) is nn.Linear
    tokens = torch.randint(41, (32,), generator=torch.Generator().manual_seed(1))
    positions = torch.cat((torch.arange(17), torch.arange(15)))
    sequences, masked_at = sequences_on(CPU, [17, 15]), torch.arange(2, 32, 2)[:14]

    def gradient(of: Bert) -> torch.Tensor:
        scores = of(tokens, torch.zeros_like(tokens), positions, sequences, masked_at)
        scores.masked_lm_MV.float().square().sum().backward()
        weight = of.layers[0].feed_forward_in.weight.grad
        assert weight is not None
        return weight

    with computing("fp8", CPU):
        ours = gradient(model)
    theirs = gradient(exact)
    error = (ours - theirs).norm() / theirs.norm()
    assert 0.002 < error < 0.2  # e4m3 keeps 4 bits, bf16 8


def test_torchao_loads_without_a_word() -> None:
    pytest.importorskip("torchao")
    program = "from tests.model.test_fp8 import CPU, bert, set_arithmetic; set_arithmetic(bert(), CPU, 'fp8', 'none')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
