"""Recognise compressed files and archives by their content, and say how to unpack them.

Most readers ask once they have failed, because HDF5 files and TFRecords have compression of their own.
"""

import re
from pathlib import Path
from shlex import quote

_COMPRESSED = {
    "gzip": rb"\x1f\x8b\x08",
    "bzip2": rb"BZh[1-9]1AY&SY",
    "xz": rb"\xfd7zXZ\x00",
    "zstd": rb"\x28\xb5\x2f\xfd",
}
"""The first bytes of files by the programs that write them; -dc unpacks each."""
_ZIP = b"PK\x03\x04"
_TAR, _TAR_AT = b"ustar", 257
_START = 512
"""Bytes that hold all signatures."""
_TAR_NAME = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz|tzst)$")


def unpacking(path: Path) -> str | None:
    """Return what a compressed file or an archive is, and how to unpack it; None for a file that is neither.

    None stands for a file that can't be read, too, because its reader reports that.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(_START)
    except OSError:
        return None
    file = quote(str(path))
    programs = [program for program, signature in _COMPRESSED.items() if re.match(signature, start)]
    if start.startswith(_TAR, _TAR_AT) or (programs and _TAR_NAME.search(path.name)):
        return f"is a tar archive; unpack it with `tar -xf {file}`"
    if start.startswith(_ZIP):
        return f"is a zip archive; unpack it with `unzip {file}`"
    if programs:
        return f"is compressed by {programs[0]}; unpack it with `{programs[0]} -dc {file} > FILE`"
    return None
