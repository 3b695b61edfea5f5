"""Write the files of a run, read them into one summary, show and compare summaries, and package the files."""
