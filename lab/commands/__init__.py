"""Define one command of `bertbench lab` a module, and list them: their code loads when it is called."""

COMMANDS = (
    ("step", "measure the training step"),
    ("ideas", "measure each idea of a CPU's step beside plain code"),
    ("train", "measure the time to the target"),
    ("data", "measure the loader"),
    ("balance", "measure the speed-up of dealing by cost"),
    ("kernels", "count and compile the GPU step's kernels without a GPU"),
    ("optim", "measure the optimizers"),
    ("overlap", "measure communication hidden behind the backward pass"),
    ("links", "compare methods of training over slow links"),
    ("buckets", "compare numbers of buckets and thresholds of bucket clipping"),
    ("clip", "compare clip modes by samples to target"),
    ("compression", "compare compressed gradients by samples to target"),
    ("optimizer", "compare optimizers by samples and seconds to target"),
    ("paper", "check the paper's claims one by one"),
    ("parallel", "compare parallel layouts by time and goodput"),
)
"""Name, which is the module's too, and help."""
