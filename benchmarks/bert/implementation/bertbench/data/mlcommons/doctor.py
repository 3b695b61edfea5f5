"""`bertbench data verify`: find missing, truncated, altered, doubled and foreign files in a download of MLCommons'.

It compares sizes first, then the MD5 of files of the right size. A text part needs an MD5, published or in a list
beside it; TFRecords only have published sizes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns

from bertbench.common.printable import printable
from bertbench.common.progress import Progress
from bertbench.data.mlcommons import published as table
from bertbench.data.mlcommons.checked import Checked
from bertbench.data.mlcommons.findings import Finding, judged, seen_together
from bertbench.data.mlcommons.inventory import Inventory, Item, take_inventory
from bertbench.data.mlcommons.published import Group
from bertbench.data.mlcommons.scan import CannotReadError, md5_of

STATE_NAME = ".bertbench-doctor.json"
_UNDISTURBING = {"License.txt", "LICENSE.txt"}
_GET = "download it"
_CHECKPOINTS: tuple[Group, ...] = ("tf1", "tf2")  # one of them is enough


@dataclass
class Diagnosis:
    """All findings."""

    findings: list[Finding] = field(default_factory=list)
    hashed: int = 0
    """Files read now; an earlier check read the rest."""
    remembered: int = 0

    @property
    def ok(self) -> bool:
        """Return whether everything needed is there and everything there is right."""
        return not any(finding.problem for finding in self.findings)


def examine(folder: Path, state: Path, progress: Progress) -> Diagnosis:
    """Check `folder`, and remember the MD5 in the file `state`. Raises DataError if it can't be listed."""
    inventory = take_inventory(folder, state)
    diagnosis = Diagnosis()
    checked = Checked(state, progress)
    try:
        sums = _hashed(folder, inventory, checked, diagnosis, progress)
    finally:
        checked.save()
    items = [item for item in inventory.items if _concerns_us(item, inventory)]
    findings = seen_together(items, [judged(item, sums.get(item.entry.path)) for item in items])
    findings += _missing(findings)
    findings += _total_of_tfrecords(findings)
    findings += [
        Finding(printable(path), None, "altered", True, detail, "get the list again")
        for path, detail in inventory.disputes
    ]
    diagnosis.findings = findings
    return diagnosis


def _hashed(
    folder: Path, inventory: Inventory, checked: Checked, diagnosis: Diagnosis, progress: Progress
) -> dict[str, str | CannotReadError]:
    """Return the MD5 of each file whose content matters, or the reason why it can't be read."""
    sums: dict[str, str | CannotReadError] = {}
    waiting = []
    for item in inventory.to_hash():
        md5 = checked.md5(item.entry)
        if md5 is None:
            waiting.append(item.entry)
        else:
            sums[item.entry.path] = md5
    diagnosis.remembered = len(sums)
    if sums:
        progress.message(f"{len(sums):,} files were checked before and have not changed since")
    total, done = sum(entry.bytes for entry in waiting), 0
    for entry in waiting:

        def read(count: int, name: str = printable(entry.path)) -> None:
            nonlocal done
            done += count
            progress.update(done, total, f"{done / 1e9:.1f} of {total / 1e9:.1f} GB: {name}")

        began_ns = time_ns()
        try:
            md5 = md5_of(folder, entry, read)
        except CannotReadError as error:
            sums[entry.path] = error
        else:
            sums[entry.path] = md5
            diagnosis.hashed += 1
            checked.add(entry, md5, began_ns)
    return sums


def _concerns_us(item: Item, inventory: Inventory) -> bool:
    """Return whether an entry matters: no folder, no licence, no list."""
    if item.entry.kind == "a folder" and item.published is None:
        return False
    beside = {one.path for one in inventory.lists}
    return item.published is not None or not (item.entry.name in _UNDISTURBING or item.entry.path in beside)


def _missing(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield needed files that are missing; of the two checkpoints, the one that was begun, else TensorFlow 1's."""
    there = {(finding.group, finding.name) for finding in findings}
    needed = [file for file in table.FILES if file.needed]
    begun: list[Group] = [group for group in _CHECKPOINTS if any(group == found for found, _ in there)]
    whole = [group for group in begun if all((group, file.name) in there for file in needed if file.group == group)]
    left_out = set(_CHECKPOINTS) - {(begun or _CHECKPOINTS)[0]} if not whole else set(_CHECKPOINTS)
    for file in needed:
        if (file.group, file.name) not in there and file.group not in left_out:
            yield Finding(
                path=file.name,
                name=file.name,
                state="missing",
                problem=True,
                remedy=_GET,
                group=file.group,
                expected_bytes=file.bytes,
                expected_md5=file.md5,
            )


def _total_of_tfrecords(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Judge the 500 TFRecords of the training text together, by their published total size."""
    parts = {file.name for file in table.FILES if file.group == "tfrecord" and file.name.startswith("part-")}
    sizes = {finding.name: finding.bytes or 0 for finding in findings if finding.group == "tfrecord"}
    total = sum(size for name, size in sizes.items() if name in parts)
    if parts <= sizes.keys():
        detail = f"found {total:,} bytes in all, expected {table.ALL_TFRECORD_PARTS_BYTES:,}"
        right = total == table.ALL_TFRECORD_PARTS_BYTES
        yield Finding(
            path="all 500 TFRecords",
            name=None,
            state="right" if right else "altered",
            problem=not right,
            detail="" if right else detail,
            remedy="" if right else "make them again",
            group="tfrecord",
            bytes=total,
            expected_bytes=table.ALL_TFRECORD_PARTS_BYTES,
            checked_by="MLCommons, its size",
        )
