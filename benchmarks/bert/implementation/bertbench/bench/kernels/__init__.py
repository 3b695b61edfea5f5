"""Generate, count, compile and budget the GPU step's kernels on a machine without a GPU."""
