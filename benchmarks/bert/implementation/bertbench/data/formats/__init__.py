"""Layouts that others publish samples in: readers that yield bounded blocks, and writers."""
