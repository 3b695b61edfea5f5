"""List what a wheel carries: the packages without the laboratory, and in bertbench/share the files that commands read.

pyproject.toml says everything else. The files keep their places in the repository: a folder of them is mapped to a
package here, because setuptools installs files as data of packages only. bertbench/common/paths.py finds them.
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

IMPLEMENTATION = "benchmarks/bert/implementation"
SHARED = {  # package, its folder in the repository, the files to carry
    "bertbench.share": (".", ["run_and_time.sh"]),
    "bertbench.share.systems": ("benchmarks/bert/systems", ["*.json"]),
    "bertbench.share.systems.base": ("benchmarks/bert/systems/base", ["*.json"]),
    "bertbench.share.launch": ("benchmarks/bert/launch", ["run.sub", "run_with_docker.sh"]),
}


class BuildPy(build_py):
    """Leave out the Python files that lie beside the shared ones, such as this file."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return no modules for a shared folder, else what setuptools finds."""
        return [] if package in SHARED else super().find_package_modules(package, package_dir)


setup(
    cmdclass={"build_py": BuildPy},
    packages=[*find_packages(IMPLEMENTATION), *find_packages(include=["compliance*"]), *SHARED],
    package_dir={"": IMPLEMENTATION, "compliance": "compliance", **{name: at for name, (at, _) in SHARED.items()}},
    package_data={
        "bertbench": ["**/*.json", "**/*.csv", "**/*.cpp", "**/*.h"],
        **{name: files for name, (_, files) in SHARED.items()},
    },
)
