import copy
import importlib.util
from pathlib import Path

import pytest

from bertbench.common.errors import ConfigError
from bertbench.model.bert import Bert
from bertbench.optim import build_optimizer
from tests.optim.drawn import TINY, lamb


@pytest.mark.skipif(importlib.util.find_spec("apex") is not None, reason="some apex is installed here")
def test_missing_apex_is_one_error_that_names_the_container() -> None:
    with pytest.raises(ConfigError, match="apex"):
        build_optimizer.build_optimizer(Bert(TINY), lamb(impl="apex"))


def test_another_project_called_apex_is_not_taken_for_nvidias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="apex"):
        build_optimizer.build_optimizer(Bert(TINY), lamb(impl="apex"))


def test_torchs_lamb_works_on_blocks_only_in_large_models_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Bert(TINY)
    elements = sum(parameter.numel() for parameter in model.parameters())

    def arithmetic(blocks_from: int, device: str) -> str:
        monkeypatch.setattr(build_optimizer, "_BLOCKS_FROM", blocks_from)
        _, text = build_optimizer.build_optimizer(copy.deepcopy(model).to(device), lamb())
        return text

    assert "blocks" in arithmetic(elements, "cpu")
    assert "blocks" not in arithmetic(elements + 1, "cpu")
    assert "blocks" not in arithmetic(elements, "meta")  # any device but a CPU
