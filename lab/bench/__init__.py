"""Benchmark bertbench and its baselines on the same work and data, in the same run."""
