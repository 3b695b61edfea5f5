"""What MLCommons publishes for BERT, and whether a folder holds it."""
