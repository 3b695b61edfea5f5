"""Optimizers, schedule, clipping and gradient reduction. Nothing here imports configuration or logging."""
