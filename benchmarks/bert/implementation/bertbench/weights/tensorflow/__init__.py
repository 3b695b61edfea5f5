"""Reading TensorFlow checkpoints without TensorFlow."""
