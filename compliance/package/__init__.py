"""Judge a submission: its files, its system descriptions, and the runs of each result, alone and together."""
