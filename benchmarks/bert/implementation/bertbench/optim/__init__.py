"""Update weights from reduced gradients: optimizers and fast kernels, loss scale, averaged weights."""
