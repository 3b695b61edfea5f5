"""The files that MLCommons publishes for BERT, and the check of a download."""
