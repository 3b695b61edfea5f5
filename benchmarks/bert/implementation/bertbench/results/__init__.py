"""Write the files of a run: the MLPerf log, metrics, the files next to them, and packages of several runs."""
