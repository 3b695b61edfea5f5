import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertbench.bench.gpu_check import summary

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bert" / "gpu_check.sh"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_check_says_so_in_a_line_and_fails() -> None:
    done = subprocess.run(
        [SCRIPT], env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "sees no GPU" in done.stderr


def test_a_report_is_counted_and_failures_are_named() -> None:
    report = """<testsuites><testsuite>
      <testcase name="a"/>
      <testcase name="b"><skipped message="no torchao"/></testcase>
      <testcase name="c"><failure message="AssertionError: 3 != 4&#10;more">...</failure></testcase>
      <testcase name="d"><error message="fixture broke"/></testcase>
    </testsuite></testsuites>"""
    assert summary(report) == {
        "passed": 1, "failed": 2, "skipped": 1, "failures": {"c": "AssertionError: 3 != 4", "d": "fixture broke"}
    }  # fmt: skip
