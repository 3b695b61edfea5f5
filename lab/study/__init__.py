"""Compare choices by samples to the target, over several seeds, with every arm tuned on the same budget."""
