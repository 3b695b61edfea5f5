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


def test_rows_within_a_row_have_a_table_of_their_own_and_a_column_without_values_is_left_out() -> None:
    parts = [
        {"name": "nccl", "limits": "", "rows": [{"collective": "all-reduce"}]},
        {"name": "step", "limits": None, "rows": []},
    ]
    page = record_page("A check", {"parts": parts})
    assert page.count("all-reduce") == 1
    assert '<tr><th scope="col">name</th></tr>' in page
