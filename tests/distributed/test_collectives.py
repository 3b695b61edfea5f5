"""The collectives are found under the name that this torch gives them; 2.13 renamed both."""

import runpy

import pytest
from torch import distributed

from bertbench.distributed import collectives

NEW = ("reduce_scatter_single", "all_gather_single")
OLD = ("reduce_scatter_tensor", "all_gather_into_tensor")


@pytest.mark.parametrize(("names", "gone"), [(NEW, OLD), (OLD, NEW)], ids=["old names gone", "new names not there yet"])
def test_collectives_are_called_by_the_name_that_this_torch_has(
    names: tuple[str, str], gone: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in gone:
        monkeypatch.delattr(distributed, name, raising=False)
    for name in names:  # a torch that has only the others stands in for one that has these
        monkeypatch.setattr(distributed, name, getattr(distributed, name, object()), raising=False)
    module = runpy.run_path(collectives.__file__)
    assert (module["reduce_scatter"], module["all_gather"]) == tuple(getattr(distributed, name) for name in names)
