"""Other ways in which ranks train one model together, each a file: what it does, its options, and its rules."""
