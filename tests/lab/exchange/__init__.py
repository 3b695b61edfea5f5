"""Test the ways in which gradients meet."""
