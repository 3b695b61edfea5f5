"""Load balance: which samples a step has and which rank gets them, so that no rank waits for another.

order (which samples) -> deal (which rank) -> plan (both, for a step). Pure: lengths in, sample ids out; no torch.
"""
