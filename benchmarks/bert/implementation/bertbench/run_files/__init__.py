"""Read what a run left behind: its metrics, settings, energy and samples, and the judge's verdict on its log."""
