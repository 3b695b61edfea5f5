"""The parts of `gpu_check.sh`, each in its own process: checks that need a GPU."""
