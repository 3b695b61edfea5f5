"""Translate options of other training programs, such as --lr, into settings of a system file.

Commands that read a system take its settings by --set, so that no option repeats what the file says.
"""

from collections.abc import Iterator, Sequence

_GPUS = "launch.ranks_per_node"
_LOCAL_BATCH = "data.local_batch"
_BATCH = "data.global_batch_size"
_WEIGHTS = "model.checkpoint"
SETTINGS = {
    "lr": "optimizer.learning_rate", "learning-rate": "optimizer.learning_rate", "base-lr": "optimizer.learning_rate",
    "optim": "optimizer.name", "optimizer": "optimizer.name", "wd": "optimizer.weight_decay",
    "weight-decay": "optimizer.weight_decay", "beta1": "optimizer.beta1", "beta2": "optimizer.beta2",
    "opt-lamb-beta-1": "optimizer.beta1", "opt-lamb-beta-2": "optimizer.beta2", "eps": "optimizer.epsilon",
    "batch": _BATCH, "batch-size": _BATCH, "global-batch-size": _BATCH, "bs": _BATCH, "train-batch-size": _BATCH,
    "local-batch-size": _LOCAL_BATCH, "per-device-train-batch-size": _LOCAL_BATCH, "micro-batch-size": _LOCAL_BATCH,
    "gradient-accumulation-steps": "data.gradient_accumulation_steps",
    "accumulate-grad-batches": "data.gradient_accumulation_steps", "grad-accum": "data.gradient_accumulation_steps",
    "steps": "schedule.max_steps", "max-steps": "schedule.max_steps", "train-steps": "schedule.max_steps",
    "train-iters": "schedule.max_steps", "num-train-steps": "schedule.max_steps", "epochs": "finetune.epochs",
    "num-epochs": "finetune.epochs", "num-train-epochs": "finetune.epochs", "warmup": "schedule.warmup_steps",
    "warmup-steps": "schedule.warmup_steps", "start-warmup-step": "schedule.start_warmup_step",
    "gpus": _GPUS, "ngpus": _GPUS, "num-gpus": _GPUS, "nproc-per-node": _GPUS, "nproc": _GPUS, "devices": _GPUS,
    "ranks": _GPUS, "workers": _GPUS, "nodes": "hardware.number_of_nodes", "nnodes": "hardware.number_of_nodes",
    "num-nodes": "hardware.number_of_nodes", "device": "launch.device", "port": "launch.port",
    "master-port": "launch.port", "time": "launch.walltime_minutes", "walltime": "launch.walltime_minutes",
    "target": "evaluation.target", "target-accuracy": "evaluation.target", "target-mlm-accuracy": "evaluation.target",
    "max-samples": "evaluation.max_samples", "max-samples-termination": "evaluation.max_samples",
    "eval-interval": "evaluation.interval_samples", "eval-every": "evaluation.interval_samples",
    "eval-iter-samples": "evaluation.interval_samples", "eval-batch-size": "evaluation.batch_size",
    "dtype": "precision.compute", "precision": "precision.compute", "compile": "compute.compile",
    "loss-scale": "precision.initial_loss_scale", "init-loss-scale": "precision.initial_loss_scale",
    "checkpoint": _WEIGHTS, "init-checkpoint": _WEIGHTS, "init": _WEIGHTS, "weights": _WEIGHTS,
    "data": "data.path", "data-dir": "data.path", "input-dir": "data.path", "dataset": "data.path",
    "eval-dir": "data.eval_path", "layers": "model.layers", "num-layers": "model.layers",
    "hidden-size": "model.hidden_size", "heads": "model.attention_heads", "num-heads": "model.attention_heads",
    "seq-length": "model.max_positions", "max-seq-length": "model.max_positions", "dropout": "model.hidden_dropout",
    "clip": "clip.max_norm", "grad-clip": "clip.max_norm", "max-grad-norm": "clip.max_norm",
    "clip-grad": "clip.max_norm", "save-steps": "checkpoint.every_steps", "save-interval": "checkpoint.every_steps",
    "num-steps-per-checkpoint": "checkpoint.every_steps", "tp": "parallel.tensor",
    "tensor-parallel-size": "parallel.tensor", "pp": "parallel.pipeline",
    "pipeline-parallel-size": "parallel.pipeline", "bucket-cap-mb": "communication.bucket_mb",
}  # fmt: skip
"""Settings by the option's name in other programs."""
FINETUNE = {
    "optimizer.learning_rate": "finetune.learning_rate", "optimizer.weight_decay": "finetune.weight_decay",
    _BATCH: "finetune.global_batch_size", "clip.max_norm": "finetune.max_norm",
    "model.max_positions": "finetune.max_seq_length", "optimizer.name": "finetune.optimizer",
    "optimizer.beta1": "finetune.beta1", "optimizer.beta2": "finetune.beta2", "optimizer.epsilon": "finetune.epsilon",
    "schedule.warmup_steps": "finetune.warmup_steps",
    "data.gradient_accumulation_steps": "finetune.gradient_accumulation_steps",
}  # fmt: skip
"""Settings that fine-tuning has of its own, by those of pre-training."""
SWITCHES = {
    "fp16": "precision.compute=fp16", "bf16": "precision.compute=bf16", "fp32": "precision.compute=fp32",
    "amp": "precision.compute=bf16", "cpu": "launch.device=cpu", "cuda": "launch.device=cuda",
}  # fmt: skip
"""Whole settings by options without a value."""


def settings_meant(words: Sequence[str], finetunes: bool, takes_weights: bool) -> list[str]:
    """Return `--set NAME=VALUE` for each unknown option that names a setting in its own way.

    For starting weights it is `--weights VALUE` if the command takes that.
    """
    options = []
    for setting in _meant(words, finetunes):
        name, _, value = setting.partition("=")
        is_weights = takes_weights and name == _WEIGHTS
        options.append(f"--weights {value}" if is_weights else f"--set {setting}")
    return options


def _meant(words: Sequence[str], finetunes: bool) -> Iterator[str]:
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        option, equals, value = word.partition("=")
        name = option.lstrip("-").lower().replace("_", "-")
        if name in SWITCHES:
            yield SWITCHES[name]
            continue
        setting = option.lstrip("-") if "." in option else SETTINGS.get(name)
        if setting is None or (setting == "finetune.epochs" and not finetunes):
            continue
        if finetunes:
            setting = FINETUNE.get(setting, setting)
        follows = words[place + 1] if place + 1 < len(words) else ""
        if not equals:
            value = follows if follows and not follows.startswith("--") else "VALUE"
        yield f"{setting}={value}"


def no_epochs(words: Sequence[str], finetunes: bool) -> bool:
    """Return whether an option asks for a number of epochs, which a run that ends at its target doesn't count."""
    names = (word.partition("=")[0].lstrip("-").lower().replace("_", "-") for word in words if word.startswith("-"))
    return not finetunes and any(SETTINGS.get(name) == "finetune.epochs" for name in names)
