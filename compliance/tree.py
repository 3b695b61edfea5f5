"""Judge the files of a submission package: MLPerf's layout, and the limits of a public repository.

systems/<system>.json, benchmarks/<benchmark>/implementations/<name>/... and
results/<system>/<benchmark>/result_<n>.txt (mlcommons/policies, submission_rules). Names, sizes and links are judged as
the official repo_checker does, except that links are followed from their own folder.
"""

import os
from itertools import chain
from pathlib import Path

from compliance.finding import Finding, Findings

_LARGEST_MB = 50
_IMPLEMENTATION = ("README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh")
_TO_FILES = "links to files of the package"
_MEND = "rename, shrink, replace or remove them"


def layout(root: Path) -> Findings:
    """Yield missing folders, and descriptions without results."""
    for folder in ("systems", "benchmarks", "results"):
        if not (root / folder).is_dir():
            found = f"no folder {folder}/"
            yield Finding("layout", "error", found, "systems/, benchmarks/ and results/", f"add {folder}/")
    for link in (path for path in (*root.glob("results/*"), *root.glob("results/*/*")) if path.is_symlink()):
        found = f"{link.relative_to(root)} is a link"
        yield Finding("layout", "error", found, "results of runs of their own", "run on this system, too")
    described = {path.stem for path in (root / "systems").glob("*.json")}
    measured = {path.name for path in folders(root / "results")}
    for name in sorted(described - measured):
        found, expected = f"systems/{name}.json without results/{name}/", "a folder of results a description"
        yield Finding("layout", "warning", found, expected, "remove the description, or add its results")


def sources(root: Path, benchmark: str) -> Findings:
    """Yield what is missing in benchmarks/<benchmark>/implementations/: sources, or files to repeat a run."""
    place = f"benchmarks/{benchmark}/implementations"
    if not any(files for _, _, files in os.walk(root / place)):
        expected = f"the sources that ran, in {place}/<name>/"
        yield Finding("sources", "error", f"no file in {place}/", expected, "add the implementation's sources")
        return
    for system in sorted(path.name for path in folders(root / "results")):
        folder = next((one for one in (root / place).iterdir() if any(one.glob(f"{system}_*.json"))), None)
        missing = [name for name in _IMPLEMENTATION if folder is None or not (folder / name).is_file()]
        if folder is None:
            missing.insert(0, f"{system}_<implementation>.json")
        if missing:
            found = f"{system}: {place}/ has no {', '.join(missing)}"
            expected = "the files to repeat the runs, in one folder (submission_rules, implementations)"
            yield Finding("implementation", "warning", found, expected, "add them")


def files(root: Path) -> Findings:
    """Yield odd names, files above 50 MB, and links that lead nowhere or out of the package."""
    inside = root.resolve()
    paths = [Path(folder, name) for folder, *names in os.walk(root) for name in chain(*names)]
    for rule, what, expected, at_fault in (
        ("file-name", "names", "no space, no leading dot and no control character in a name", _oddly_named),
        ("file-size", f"files above {_LARGEST_MB} MB", f"at most {_LARGEST_MB} MB a file", _is_large),
        ("broken-link", "links that lead nowhere", _TO_FILES, lambda path: path.is_symlink() and not path.exists()),
        (
            "outside-link", "links out of the package", _TO_FILES,
            lambda path: path.is_symlink() and path.exists() and not path.resolve().is_relative_to(inside),
        ),
    ):  # fmt: skip
        if found := sorted(str(path.relative_to(root)) for path in paths if at_fault(path)):
            shown = f"{len(found)} {what}, such as {', '.join(found[:5])}"
            # the official tool passes links out of the package, although they break where it is unpacked
            yield Finding(rule, "warning" if rule == "outside-link" else "error", shown, expected, _MEND)


def _oddly_named(path: Path) -> bool:
    return path.name.startswith(".") or " " in path.name or not path.name.isprintable()


def _is_large(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size > _LARGEST_MB << 20


def folders(parent: Path) -> list[Path]:
    """Return the subfolders of a folder by name; none if the folder doesn't exist."""
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
