"""Predict, without the machine, what a run needs: memory, bytes sent, layouts and time to train."""
