"""Shared basics: errors, paths, random streams, progress, and atomic files. Imports no other room."""
