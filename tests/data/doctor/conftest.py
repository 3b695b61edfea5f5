"""A small download, and `data verify` with a table of its names and sums."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertbench.cli.main import main
from bertbench.data.mlcommons import published
from bertbench.data.mlcommons.published import PublishedFile
from tests.data.doctor.small_download import CONTENTS, TEXT_LIST, UNLISTED, Doctor, md5


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLCommons' table, with three parts and small contents."""
    groups: Any = {"text": "text", "": "input", "tf1_ckpt": "tf1", "tf2_ckpt": "tf2"}
    files = []
    for path, content in CONTENTS.items():
        folder, _, name = path.rpartition("/")
        known = () if name in UNLISTED else (len(content), md5(content))
        files.append(PublishedFile(name, groups[folder], True, *known))
    monkeypatch.setattr(published, "FILES", tuple(files))


@pytest.fixture
def download(tmp_path: Path) -> Path:
    """A complete download with the list that the downloader writes, but without the TensorFlow 2 checkpoint."""
    lines = []
    for path, content in CONTENTS.items():
        if not path.startswith("tf2"):
            (tmp_path / "D" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "D" / path).write_bytes(content)
        if path.startswith("text"):
            lines.append(f"{md5(content)}  ./{path.removeprefix('text/')}\n")
    (tmp_path / "D" / "text" / TEXT_LIST).write_text("".join(lines))
    return tmp_path / "D"


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Return its report as JSON; `files` is by path, and lists only files with a fault."""

    def check(folder: Path, *words: str) -> dict[str, Any]:
        code = main(["data", "verify", str(folder), "--json", *words])
        content: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert content["ok"] == (code == 0)
        return {**content, "files": {one["path"]: one for one in content["files"] if one["state"] != "right"}}

    return check
