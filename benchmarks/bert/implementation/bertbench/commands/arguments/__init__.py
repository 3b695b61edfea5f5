"""The arguments of commands whose own code imports torch: a mistake in them costs no second of loading it."""
