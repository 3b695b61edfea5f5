"""Data, from text to batches: corpus -> samples -> shards (offline), then sampler -> batch -> loader (the run)."""
