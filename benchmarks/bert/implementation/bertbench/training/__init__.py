"""The timed run: initialise, train and evaluate in turn, stop at the target."""
