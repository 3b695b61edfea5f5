"""Start ranks: on this machine, or by the commands of Slurm, docker and torchrun; check an allocation."""
