"""Draw the page of `bertbench report` in a browser: `python docs/site/report_picture.py` writes docs/report.png.

The page shows the recorded runs of the demo. Drawing needs Chromium (`apt-get install chromium`). The picture stores a
digest of the page, so a test without a browser finds a picture that is out of date.
"""

import hashlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
PICTURE = _REPOSITORY / "docs" / "report.png"
RUNS = "results/cpu_demo"
_WIDTH = 900
_HEIGHT = 1415  # pixels down to the first rows of the table of runs
_LINK_TO_LOG = re.compile(rb'<a href="[^"]*">(.*?)</a>')
_KEYWORD = b"Digest of the page"
_DIGEST = re.compile(rb"tEXt" + _KEYWORD + rb"\0([0-9a-f]{64})")


def report_page(folder: str) -> bytes:
    """Return the page that `bertbench report` draws of a folder, without its links to logs."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "report.html")
        command = [sys.executable, "-P", "-m", "bertbench", "report", folder, "--html", str(page)]
        subprocess.run(command, check=True, cwd=_REPOSITORY, stdout=subprocess.DEVNULL)
        return _LINK_TO_LOG.sub(rb"\1", page.read_bytes())


def digest(page: bytes) -> str:
    """Return the digest of a page, by which a picture is recognised as its own."""
    return hashlib.sha256(page).hexdigest()


def digest_in(picture: bytes) -> str | None:
    """Return the digest of the page that a picture shows; None if it stores none."""
    found = _DIGEST.search(picture)
    return found[1].decode() if found else None


def drawn(page: bytes) -> bytes:
    """Return the top of a page as a PNG that stores the page's digest. Raises SystemExit if there is no Chromium."""
    browser = shutil.which("chromium")
    if browser is None:
        raise SystemExit("found no chromium, which draws docs/report.png; install it: apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch:
        html = Path(scratch, "report.html")
        html.write_bytes(page)
        png = Path(scratch, "report.png")
        command = [
            browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            f"--user-data-dir={scratch}/profile", f"--window-size={_WIDTH},{_HEIGHT}", f"--screenshot={png}",
            html.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return _with_text(png.read_bytes(), _KEYWORD + b"\0" + digest(page).encode())


def _with_text(png: bytes, text: bytes) -> bytes:
    """Return a PNG with a text chunk in front of its last chunk, IEND."""
    content = b"tEXt" + text
    chunk = struct.pack(">I", len(text)) + content + struct.pack(">I", zlib.crc32(content))
    end = png.rindex(b"IEND") - 4  # the chunk begins with four bytes of length
    return png[:end] + chunk + png[end:]


if __name__ == "__main__":
    PICTURE.write_bytes(drawn(report_page(RUNS)))
