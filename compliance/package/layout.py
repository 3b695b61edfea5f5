"""Judge the files of a submission package: MLPerf's layout, and the limits of a public repository.

The layout is systems/<system>.json, benchmarks/<benchmark>/implementations/<name>/... and
results/<system>/<benchmark>/result_<n>.txt (mlcommons/policies, submission_rules). We judge names, sizes and links like
the official repo_checker, except that we follow links from their own folder. No text forbids links in results/, or
descriptions without results, so the judge only notes these.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from compliance.rules.rule import Breach, Unchecked
from compliance.rules.submission import BROKEN_LINK, FILE_NAME, FILE_SIZE, IMPLEMENTATION, LAYOUT, SOURCES

_LARGEST_MB = 50
_IMPLEMENTATION = ("README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh")
_MOST_SHOWN = 5

Findings = Iterator[Breach | Unchecked]


def folders_and_descriptions(root: Path) -> Findings:
    """Yield missing folders, and descriptions without results."""
    for folder in ("systems", "benchmarks", "results"):
        if not (root / folder).is_dir():
            yield LAYOUT.breach(f"no folder {folder}/", "the folders systems/, benchmarks/ and results/")
    for path in (*root.glob("results/*"), *root.glob("results/*/*")):
        if path.is_symlink():
            reason = f"{path.relative_to(root)} is a link; the judge can't tell whether the runs are this system's own"
            yield LAYOUT.unchecked(reason, asked=False)
    described = {path.stem for path in (root / "systems").glob("*.json")}
    measured = {path.name for path in folders(root / "results")}
    for name in sorted(described - measured):
        yield LAYOUT.unchecked(f"systems/{name}.json describes a system without results/{name}/", asked=False)


def sources(root: Path, benchmark: str) -> Findings:
    """Yield what benchmarks/<benchmark>/implementations/ lacks: source code, or files to repeat a run."""
    place = f"benchmarks/{benchmark}/implementations"
    if not any(files for _, _, files in os.walk(root / place)):
        yield SOURCES.breach(f"no file in {place}/", f"the source code that made the results, in {place}/<name>/")
        return
    for system in sorted(path.name for path in folders(root / "results")):
        missing = _missing_of_implementation(root / place, system)
        if missing:
            yield IMPLEMENTATION.unchecked(f"{system}: {place}/ lacks {', '.join(missing)}")


def _missing_of_implementation(implementations: Path, system: str) -> list[str]:
    """Return the files that a system's implementation lacks; it is the folder that has the system's settings."""
    for implementation in implementations.iterdir():
        if any(implementation.glob(f"{system}_*.json")):
            return [name for name in _IMPLEMENTATION if not (implementation / name).is_file()]
    return [f"{system}_<implementation>.json", *_IMPLEMENTATION]


def files(root: Path, ruleset: str) -> Findings:
    """Yield odd names, large files, and links that are broken or leave the package, from the first round that asks."""
    if not FILE_NAME.applies_to(ruleset):
        yield FILE_NAME.unchecked(f"the official repo_checker doesn't accept ruleset {ruleset}", asked=False)
        return
    inside = root.resolve()
    paths = [
        Path(folder, name) for folder, subfolders, file_names in os.walk(root) for name in (*subfolders, *file_names)
    ]
    links = [path for path in paths if path.is_symlink()]
    for rule, kind, breaks in (
        (FILE_NAME, "names with a space or a leading dot", _is_oddly_named),
        (FILE_SIZE, f"files larger than {_LARGEST_MB} MB", _is_large),
        (BROKEN_LINK, "broken links", _is_broken),
    ):
        if at_fault := _at_fault(root, paths, breaks):
            yield rule.breach(_listed(kind, at_fault))
    outside = [link for link in links if not _is_broken(link) and not link.resolve().is_relative_to(inside)]
    if outside:
        # the official tool passes links out of the package, although they break where the package is unpacked
        names = [str(link.relative_to(root)) for link in sorted(outside)]
        yield BROKEN_LINK.unchecked(_listed("links that leave the package", names), asked=False)


def _at_fault(root: Path, paths: list[Path], breaks: Callable[[Path], bool]) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in paths if breaks(path))


def _listed(kind: str, paths: list[str]) -> str:
    """Return a line with the first paths of a kind, and the number of further ones."""
    more = len(paths) - _MOST_SHOWN
    line = f"{kind}: {', '.join(paths[:_MOST_SHOWN])}"
    return f"{line}, and {more:,} more" if more > 0 else line


def _is_oddly_named(path: Path) -> bool:
    return path.name.startswith(".") or " " in path.name


def _is_large(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size > _LARGEST_MB << 20


def _is_broken(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def folders(parent: Path) -> list[Path]:
    """Return the subfolders of a folder by name; none if the folder doesn't exist."""
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
