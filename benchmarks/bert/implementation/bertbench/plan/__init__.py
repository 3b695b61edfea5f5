"""Find out what a run will hold, send and take before its machine is there: memory, layouts, time to train."""
