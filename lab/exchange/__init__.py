"""Combine gradients in the ways known from training at scale, on a few real gloo processes."""
