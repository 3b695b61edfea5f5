"""Compute BERT on unpadded batches: attention -> encoder -> bert. Nothing here imports configuration or logging."""
