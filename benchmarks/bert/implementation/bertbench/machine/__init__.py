"""Describe the machine at hand: processor, GPUs, meters, versions, and its fastest arithmetic."""
