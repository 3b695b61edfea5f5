"""Optimisers, schedule and clipping. Nothing here imports configuration or logging."""
