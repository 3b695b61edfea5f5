"""Snapshots of a run, and going on from one as if nothing had happened (docs/reliability.md)."""
