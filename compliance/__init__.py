"""Judge MLPerf Training logs, whoever wrote them: log -> run -> official -> judge -> report.

Reads files only: needs neither torch nor bertbench. `python -m compliance --help` says how to use it.
"""
