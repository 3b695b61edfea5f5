"""Read the files of a finished or running run: its metrics, settings, samples, and the judge's verdict."""
