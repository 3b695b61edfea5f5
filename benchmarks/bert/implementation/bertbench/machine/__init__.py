"""Describe this machine: processor, GPUs, meters and versions, and its fastest arithmetic."""
