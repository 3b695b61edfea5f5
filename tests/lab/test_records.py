"""A record has a line for each row."""

import json

from lab.records import record_text


def test_a_record_has_a_line_for_each_row_and_keeps_its_content() -> None:
    content = {
        "command": "bertbench lab x", "results": {"machine": {"cores": 2}, "rows": [{"a": 1}, {"a": [2, 3]}]},
        "spans": [[0, 1], [2, 3]], "seeds": [1, 2],
    }  # fmt: skip
    text = record_text(content)
    assert text.splitlines() == [
        "{",
        '"command": "bertbench lab x",',
        '"results": {',
        '"machine": {"cores": 2},',
        '"rows": [',
        '{"a": 1},',
        '{"a": [2, 3]}',
        "]",
        "},",
        '"spans": [',
        "[0, 1],",
        "[2, 3]",
        "],",
        '"seeds": [1, 2]',
        "}",
    ]
    assert json.loads(text) == content
