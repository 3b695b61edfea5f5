"""A run without its machine: what `bertbench plan` finds out about any rank of any system."""
