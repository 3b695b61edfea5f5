"""Balance the load: choose the samples of a step and assign them to ranks, so that no rank waits for another.

order (which samples) -> assignment (which rank) -> plan (both, for a step). Pure: lengths in, sample ids out; no torch.
"""
