"""List the commands of `bertbench lab`: a bench or a study each, whose code loads when it is called."""

_BENCHES = {
    "step": "measure the training step",
    "ideas": "measure each idea of a CPU's step and plain code in its place",
    "train": "measure the time to the target",
    "data": "measure the loader",
    "balance": "measure the speed-up of dealing by cost",
    "kernels": "count and compile the GPU step's kernels without a GPU",
    "optim": "measure the optimizers",
    "overlap": "measure communication hidden behind the backward pass",
    "links": "compare methods of training over slow links",
    "parallel": "compare parallel layouts by time",
}
_STUDIES = {
    "buckets": "compare numbers of buckets and thresholds of bucket clipping",
    "clip": "compare clip modes by samples to target",
    "compression": "compare compressed gradients by samples to target",
    "optimizer": "compare optimizers by samples and seconds to target",
    "paper": "check the paper's claims one by one",
}
COMMANDS = (
    *((name, text, "lab.bench") for name, text in _BENCHES.items()),
    *((name, text, "lab.commands") for name, text in _STUDIES.items()),
)
"""Name, which is the module's too, help, and the module's package."""
