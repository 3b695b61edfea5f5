"""Run the timed benchmark: initialise, train and evaluate in turn, stop at the target."""
