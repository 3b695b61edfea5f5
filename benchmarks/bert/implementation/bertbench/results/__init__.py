"""Write what a run leaves: the MLPerf log, metrics, the files beside them, and the package made of them."""
