"""Judge MLPerf Training logs, whoever wrote them: source -> record -> log -> run -> rules, official -> judge.

Reads files only: needs neither torch nor bertbench. `python -m compliance --help` says how to use it.
"""
