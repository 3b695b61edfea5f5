"""Read the files of a finished or running run: its metrics, settings, energy, samples, and the judge's verdict."""
