"""Hold what all packages share: errors, paths, random streams, progress, phases, atomic files. Imports none of them."""
