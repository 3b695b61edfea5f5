"""bertbench: an MLPerf-style BERT pre-training benchmark (see docs/architecture.md for the map)."""

__version__ = "0.1.0"
