"""Benchmark ours and its rivals on the same work and data, in the same run."""
