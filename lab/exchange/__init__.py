"""Combine gradients in the ways known from training at scale, each in small, on real gloo processes."""
