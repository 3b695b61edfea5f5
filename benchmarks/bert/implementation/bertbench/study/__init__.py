"""Studies: what a choice is worth in samples to the target, over several seeds, each arm tuned with the same budget."""
