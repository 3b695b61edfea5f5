"""Let gradients meet in the ways that training at scale knows, each small and on real gloo processes."""
