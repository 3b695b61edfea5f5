"""Offer the Python functions of `import bertbench`: load a system, plan a step, judge logs, read a run, train.

`bertbench/__init__.py` names them, and imports each when it is used.
"""
