"""Measure and study the product beside rivals: run by `bertbench lab` in a checkout, carried by no wheel."""
