"""Save snapshots of a run, and resume from one exactly (docs/reliability.md)."""
