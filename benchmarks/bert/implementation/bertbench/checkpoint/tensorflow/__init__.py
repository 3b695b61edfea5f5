"""Read TensorFlow checkpoints without TensorFlow."""
