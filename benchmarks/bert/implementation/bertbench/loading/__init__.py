"""From a dataset to the batches of a step: sampler, batch, loader, exchange."""
