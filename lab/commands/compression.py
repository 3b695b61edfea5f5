"""`bertbench lab compression`: compare int8 and top-k gradients with gradients in full, by samples to target."""

from lab.commands.study import study_command

add_arguments, run = study_command("compression")
