"""Judge a submission: its files, its system descriptions, and each result's runs, singly and together."""
