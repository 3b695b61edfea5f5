"""Compare choices by samples to the target, over several seeds, with every configuration tuned on the same budget."""
