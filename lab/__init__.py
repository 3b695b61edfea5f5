"""Measure and study the product and compare it with baselines, by `bertbench lab`; only in a checkout, in no wheel."""
