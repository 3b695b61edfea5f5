"""`bertbench lab buckets`: numbers of gradient buckets and scalings of their clipping threshold, on virtual ranks."""

from lab.commands.study import study_command

add_arguments, run = study_command("buckets")
