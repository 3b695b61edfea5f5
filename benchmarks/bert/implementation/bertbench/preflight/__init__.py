"""Check an allocation before a run: collect each node's state, and name the nodes with problems."""

LEAST_GBIT = {"cuda": 100.0, "cpu": 0.0}
"""NCCL exceeds it over one of today's network cards, but not over a fallback socket or a bad cable."""
