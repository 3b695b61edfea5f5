"""The GPU step's kernels on a machine without a GPU: generated, counted, compiled to machine code, budgeted."""
