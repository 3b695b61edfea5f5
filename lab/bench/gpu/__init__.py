"""Run checks that need a GPU: the parts of `gpu_check.sh`, each in its own process."""
