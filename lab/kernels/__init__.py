"""Generate, count and compile the GPU step's kernels on a machine without a GPU."""
