import subprocess
import sys

import pytest

_WITHOUT = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
"""
_BENCHES = """
for package in ("model", "optim"):
    path = importlib.import_module("bertbench." + package).__path__
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"bertbench.{package}.{module.name}")
for name in ("cost", "optim", "overlap", "shapes"):
    importlib.import_module("bertbench.bench." + name)
import bertbench.bench.gpu_check, bertbench.bench.trace, bertbench.commands.bench_overlap, bertbench.distributed.spawn
import tests.gpu.test_gpu
"""
_CHECK = """
package = importlib.import_module("bertbench.bench.gpu")
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module("bertbench.bench.gpu." + module.name)
for name in ("gpu_check", "step", "rivals"):
    importlib.import_module("bertbench.bench." + name)
for name in ("step", "optim", "overlap"):
    importlib.import_module("bertbench.commands.bench_" + name)
import tests.gpu.test_gpu
"""


def test_model_optimizer_benches_and_gpu_tests_need_neither_pydantic_nor_mlperf_logging_nor_h5py() -> None:
    run_without(("pydantic", "mlperf_logging", "h5py", "transformers"), _BENCHES)


def test_what_gpu_check_runs_needs_neither_pydantic_nor_mlperf_logging_nor_apex() -> None:
    run_without(("pydantic", "mlperf_logging", "apex"), _CHECK)


def test_a_run_loads_neither_the_judge_nor_pages_nor_split_models() -> None:
    pytest.importorskip("pydantic")
    rooms = ("compliance", "bertbench.report", "bertbench.parallel", "bertbench.data.text")
    code = f"import bertbench.training.train; assert not [name for name in sys.modules if name.startswith({rooms})]"
    run_without((), code)


def run_without(missing: tuple[str, ...], code: str) -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT.format(missing=missing) + code], check=True)
