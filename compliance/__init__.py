"""Judge MLPerf Training logs of any origin: source -> record -> log -> run -> rules, official -> judge.

It only reads files and needs neither torch nor bertbench. `python -m compliance --help` explains its use.
"""
