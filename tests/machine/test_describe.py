import json
import platform

import numpy as np
import pytest
import torch

from bertbench.cli.main import main
from bertbench.common.errors import RunError
from bertbench.config import load_system
from bertbench.config.sections import Hardware
from bertbench.machine import describe, gpus, provenance
from bertbench.machine.provenance import with_software
from tests.conftest import Captured
from tests.machine.driver import H100, Driver


def test_the_description_has_every_field_and_blanks_where_a_machine_cannot_know(
    capsys: Captured,
) -> None:
    assert main(["env", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found.pop("command") == "env"
    assert list(found) == list(load_system("cpu_demo").hardware.description())
    assert all(isinstance(value, str) for value in found.values())
    assert found["framework"].startswith("PyTorch 2.")
    assert found["host_processor_model_name"]
    assert found["operating_system"]
    for unknowable in ("submitter", "division", "status", "cooling", "host_memory_configuration"):
        assert found[unknowable] == ""
        assert unknowable in said.err


def test_a_file_that_promises_missing_gpus_is_an_error() -> None:
    missing = int(describe.accelerators().get("accelerators_per_node", "0")) + 1
    promised = load_system("dgxa100_n1").hardware.model_copy(update={"accelerators_per_node": missing})
    with pytest.raises(RunError, match=f"{missing - 1} GPUs"):
        describe.hardware_differences(promised)


def test_another_processor_is_reported_and_a_fuller_name_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "processor", lambda: "AMD EPYC 7742 64-Core Processor")
    monkeypatch.setattr(describe, "accelerators", dict)
    named = Hardware(
        division="open", status="Preview", system_name="x", number_of_nodes=1, host_processor_model_name="AMD EPYC 7742"
    )
    assert describe.hardware_differences(named) == []
    (line,) = describe.hardware_differences(named.model_copy(update={"host_processor_model_name": "Intel Xeon"}))
    assert "host_processor_model_name" in line


def test_a_description_gets_the_versions_that_it_leaves_out_and_keeps_its_own() -> None:
    said = load_system("dgxa100_n1").hardware.description()
    assert (said["framework"], said["operating_system"]) == ("PyTorch", "")
    filled = with_software(said)
    assert filled["framework"].startswith(f"PyTorch {torch.__version__}")
    assert filled["operating_system"]
    assert f"Python {platform.python_version()}" in filled["other_software_stack"]
    assert f"numpy {np.__version__}" in filled["other_software_stack"]
    changed = {name for name in said if filled[name] != said[name]}
    assert changed == {"framework", "operating_system", "other_software_stack"}
    given = {"framework": "PyTorch 1.13", "operating_system": "DGX OS"}
    assert given.items() <= with_software(said | given).items()


def test_a_driver_that_doesn_t_answer_leaves_blanks_and_doesn_t_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability"):
        monkeypatch.delattr(Driver, name)
    for module in (describe, gpus, provenance):
        monkeypatch.setattr(module, "pynvml", Driver([H100, H100]))
    found = describe.accelerators()
    assert found.pop("accelerators_per_node") == "2"
    assert set(found.values()) == {""}
    assert "NVIDIA driver" not in provenance.software()["other_software_stack"]
    kinds, problems = gpus.gpus_and_problems()
    assert len(kinds) == 2
    assert problems[0].startswith("GPU 0: ")
