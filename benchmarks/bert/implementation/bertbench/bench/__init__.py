"""Benchmarks in which ours and its rivals do the same work, on the same data, in the same run."""
