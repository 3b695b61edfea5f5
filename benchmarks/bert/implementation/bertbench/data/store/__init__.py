"""Datasets on disk: shards, index, manifest; reading, shuffling and verifying them."""
