import subprocess
import sys

_IMPORT = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pydantic", "mlperf_logging", "h5py", "transformers"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
for package in ("model", "optim"):
    path = importlib.import_module("bertbench." + package).__path__
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"bertbench.{package}.{module.name}")
for name in ("cost", "optim", "overlap", "shapes"):
    importlib.import_module("bertbench.bench." + name)
import bertbench.bench.gpu_check, bertbench.bench.trace, bertbench.commands.bench_overlap, bertbench.distributed.spawn
import tests.gpu.test_gpu
"""


def test_model_optimizer_benches_and_gpu_tests_need_neither_pydantic_nor_mlperf_logging_nor_h5py() -> None:
    subprocess.run([sys.executable, "-c", _IMPORT], check=True)
