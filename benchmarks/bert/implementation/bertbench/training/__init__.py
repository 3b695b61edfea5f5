"""Run the timed benchmark: initialise, alternate training and evaluation, stop at the target."""
