"""A plugin of pytest that says each test's outcome as a row, as soon as the test ends."""

import pytest

from lab.bench.gpu.stand import Row, print_row


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say how a test ended; a skipped one is only counted as not reached."""
    if report.when != "call" and report.passed:
        return
    print()  # pytest's dots have no line of their own
    row: Row = {"test": report.nodeid.partition("::")[2]}
    if report.skipped:
        print_row(row | {"not_reached": str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "skipped"})
    elif report.failed:
        message = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
        print_row(row | {"holds": False, "error": message.partition("\n")[0]})
    else:
        print_row(row | {"holds": True} | dict(report.user_properties))
