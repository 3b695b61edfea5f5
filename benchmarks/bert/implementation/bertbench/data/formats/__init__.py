"""Published layouts of samples: readers that yield bounded blocks, and writers."""
