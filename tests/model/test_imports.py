import subprocess
import sys

_WITHOUT = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
"""
_CHECK = """
package = importlib.import_module("lab.bench.gpu")
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module("lab.bench.gpu." + module.name)
for name in ("gpu_check", "step", "baselines", "update", "overlap"):
    importlib.import_module("lab.bench." + name)
import tests.gpu.test_gpu
"""


def test_gpu_check_needs_no_baseline_and_no_apex() -> None:
    run_without(("transformers", "accelerate", "apex"), _CHECK)


def test_a_run_loads_no_judge_no_pages_no_split_models_and_no_slow_parts_of_torch() -> None:
    rooms = ("compliance", "matplotlib", "bertbench.parallel", "bertbench.data.text", "sympy", "torch._inductor.")
    code = f"import bertbench.training.train; assert not [name for name in sys.modules if name.startswith({rooms})]"
    run_without((), code)


def run_without(missing: tuple[str, ...], code: str) -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT.format(missing=missing) + code], check=True)
