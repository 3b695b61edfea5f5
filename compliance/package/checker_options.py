"""Read package_checker_params: the options that a submitter gives the official package checker for a result."""

import io
from pathlib import Path

from compliance.read.source import CannotJudge, read_plain

OPTIONS_FILE = "package_checker_params"
RCP_BYPASS = "rcp-bypass"
SEED_CHECKER_BYPASS = "seed-checker-bypass"
_LARGEST = 1 << 16  # bytes; published ones have some tens


def checker_options(folder: Path) -> list[str]:
    """Return the lines of package_checker_params, with their line ends, as the official checker reads them.

    The file is in the folder of the result, or of its system. A line that has a line end matches no option above.
    """
    lines: list[str] = []
    for path in (folder / OPTIONS_FILE, folder.parent / OPTIONS_FILE):
        try:
            content = read_plain(path, _LARGEST)
        except CannotJudge:
            continue
        lines += io.StringIO(content.decode(errors="replace"), newline=None).readlines()
    return lines
