"""Test the ways in which ranks exchange gradients."""
