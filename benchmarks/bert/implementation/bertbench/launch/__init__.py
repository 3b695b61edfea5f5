"""Start ranks: on this machine, or by the commands of Slurm, docker, Kubernetes and torchrun; check an allocation."""
