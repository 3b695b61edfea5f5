"""Hold what all packages share: errors, paths, random streams, progress, phases, and atomic files. Import none."""
