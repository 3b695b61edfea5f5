"""The machine at hand: processor, GPUs, caches, versions."""
