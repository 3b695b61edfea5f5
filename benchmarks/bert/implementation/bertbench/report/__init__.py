"""Show running and finished runs: tables, comparisons, a page with curves, and copies in trackers."""
