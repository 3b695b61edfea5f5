"""Make the batches of a step from a dataset: sampler, batch, loader, exchange."""
