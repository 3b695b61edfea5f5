"""`bertbench lab optimizer`: optimizers by samples and seconds to target, tuned alike, in one process."""

from lab.commands.study import study_command

add_arguments, run = study_command("optimizer")
