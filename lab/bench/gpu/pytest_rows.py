"""Print each test's outcome as a row as soon as the test ends: a plugin for pytest."""

import pytest

from lab.bench.gpu.testbed import Row, print_row


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print how a test ended; a skipped test is counted as not reached."""
    if report.when != "call" and report.passed:
        return
    print()  # ends the line of pytest's dots
    row: Row = {"test": report.nodeid.partition("::")[2]}
    if report.skipped:
        print_row(row | {"not_reached": str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "skipped"})
    elif report.failed:
        message = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
        print_row(row | {"holds": False, "error": message.partition("\n")[0]})
    else:
        print_row(row | {"holds": True} | dict(report.user_properties))
