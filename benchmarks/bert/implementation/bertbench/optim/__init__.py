"""Update weights from reduced gradients: optimizers, their fast implementations, loss scale, average, outer step."""
