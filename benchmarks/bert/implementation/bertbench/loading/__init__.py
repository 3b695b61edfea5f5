"""Make the batches of a step from a dataset: sampler, bins, batch, filler, loader, sample exchange."""
