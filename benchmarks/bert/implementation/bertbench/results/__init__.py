"""What a run writes: MLPerf log, metrics, the files beside them, the package made of them."""
