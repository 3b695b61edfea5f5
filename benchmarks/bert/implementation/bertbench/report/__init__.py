"""Draw pages and charts: runs, curves, profiles, and published results beside them."""
