"""The parts of `gpu_check.sh`: what only a machine with a GPU shows, each in a process of its own."""
