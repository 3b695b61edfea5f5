"""Prepare data: corpus -> samples -> shards, and read them again."""
