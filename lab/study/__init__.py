"""Compare configurations by samples to the target over several seeds, after tuning each on the same budget."""
