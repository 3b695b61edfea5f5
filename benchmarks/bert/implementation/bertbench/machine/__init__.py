"""Describe this machine: processor, GPUs, energy counters and versions, and its fastest arithmetic."""
