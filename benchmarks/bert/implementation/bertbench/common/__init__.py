"""Provide the basics: errors, paths, random streams, progress, phases, and atomic files. Imports no other package."""
