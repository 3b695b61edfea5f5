"""Measure and study the product beside baselines: run by `bertbench lab` in a checkout, carried by no wheel."""
