"""A page for any record."""

from lab.record_page import record_page


def test_a_page_shows_all_values_of_a_record_and_escapes_them() -> None:
    record = {
        "passed": False,
        "nothing": [],
        "parts": [
            {"name": "nccl", "reason": "<b>", "rows": [{"collective": "all-reduce", "fastest_ms": 1234.5}]},
            {"name": "step", "rows": [{"found": {"results": [{"size": "huge", "shares": [1, 2]}]}}]},
        ],
    }
    page = record_page("A check", record)
    for shown in ("<p>no</p>", "nccl: rows", "all-reduce", "1,234.5", "huge", "1, 2", "&lt;b&gt;"):
        assert shown in page
    assert "nothing" not in page
    assert "<b>" not in page
