"""Translate options of other training programs, such as --lr, into settings of a system file.

Commands that read a system file take its settings with --set, so that there is only one name for each.
"""

import difflib
from collections.abc import Iterator, Sequence

_GPUS = "launch.ranks_per_node"
_LOCAL_BATCH = "data.local_batch"
_BATCH = "data.global_batch_size"
_WEIGHTS = "model.checkpoint"
_EPOCHS = "finetune.epochs"
_SIMILAR = 0.8  # of difflib's ratio, for whole names: --micro-batch is like --micro-batch-size
SETTINGS = {
    "lr": "optimizer.learning_rate", "learning-rate": "optimizer.learning_rate", "base-lr": "optimizer.learning_rate",
    "optim": "optimizer.name", "optimizer": "optimizer.name", "wd": "optimizer.weight_decay",
    "weight-decay": "optimizer.weight_decay", "beta1": "optimizer.beta1", "beta2": "optimizer.beta2",
    "opt-lamb-beta-1": "optimizer.beta1", "opt-lamb-beta-2": "optimizer.beta2", "eps": "optimizer.epsilon",
    "batch": _BATCH, "batch-size": _BATCH, "global-batch-size": _BATCH, "bs": _BATCH, "train-batch-size": _BATCH,
    "local-batch-size": _LOCAL_BATCH, "per-device-train-batch-size": _LOCAL_BATCH, "micro-batch-size": _LOCAL_BATCH,
    "micro-batch": _LOCAL_BATCH, "global-batch": _BATCH,
    "gradient-accumulation-steps": "data.gradient_accumulation_steps",
    "accumulate-grad-batches": "data.gradient_accumulation_steps", "grad-accum": "data.gradient_accumulation_steps",
    "steps": "schedule.max_steps", "max-steps": "schedule.max_steps", "train-steps": "schedule.max_steps",
    "train-iters": "schedule.max_steps", "num-train-steps": "schedule.max_steps", "epochs": _EPOCHS,
    "num-epochs": _EPOCHS, "num-train-epochs": _EPOCHS, "warmup": "schedule.warmup_steps",
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
"""Fine-tuning's own settings, by the pre-training settings of the same meaning."""
SWITCHES = {
    "fp16": "precision.compute=fp16", "bf16": "precision.compute=bf16", "fp8": "precision.compute=fp8",
    "fp32": "precision.compute=fp32", "amp": "precision.compute=bf16",
    "cpu": "launch.device=cpu", "cuda": "launch.device=cuda",
}  # fmt: skip
"""Settings with their values, by options that take none."""


def settings_meant(words: Sequence[str], finetunes: bool, takes_weights: bool, misspelt: bool = False) -> list[str]:
    """Return `--set NAME=VALUE` for each unknown option that means a setting; if `misspelt`, also for similar names.

    For starting weights, it is `--weights VALUE` if the command takes that.
    """
    options = []
    for setting in _meant(words, finetunes, misspelt):
        name, _, value = setting.partition("=")
        is_weights = takes_weights and name == _WEIGHTS
        options.append(f"--weights {value}" if is_weights else f"--set {setting}")
    return options


def _meant(words: Sequence[str], finetunes: bool, misspelt: bool) -> Iterator[str]:
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        without_set = equals and "." in option  # NAME=VALUE as --set takes it
        if not word.startswith("-") and not without_set:
            continue
        if _plain(option) in SWITCHES:
            yield SWITCHES[_plain(option)]
            continue
        setting = _setting_of(option, misspelt)
        if setting is None or (setting == _EPOCHS and not finetunes):
            continue
        if finetunes:
            setting = FINETUNE.get(setting, setting)
        follows = words[place + 1] if place + 1 < len(words) else ""
        if not equals:
            value = follows if follows and not follows.startswith("--") else "VALUE"
        yield f"{setting}={value}"


def _setting_of(option: str, misspelt: bool) -> str | None:
    """Return the setting that an option means: by its own dotted name, another program's name, or its last word.

    With `misspelt`, a similar name will do.
    """
    dotted = option.lstrip("-")
    settings = list(_all_settings())
    if "." in dotted:
        if dotted in settings:
            return dotted
        similar = difflib.get_close_matches(dotted, settings, 1, _SIMILAR) if misspelt else []
        return similar[0] if similar else None
    by_name: dict[str, str] = {}
    for setting in settings:
        by_name.setdefault(_plain(setting.rpartition(".")[2]), setting)
    by_name |= SETTINGS
    name = _plain(option)
    if misspelt:
        name = next(iter(difflib.get_close_matches(name, by_name, 1, _SIMILAR)), name)
    return by_name.get(name)


def _all_settings() -> Iterator[str]:
    """Yield the dotted names of all settings except those that describe the machine."""
    from bertbench.config.partial import section_of
    from bertbench.config.settings import Settings

    sections = [(name, section_of(field)) for name, field in Settings.model_fields.items() if name != "hardware"]
    while sections:
        prefix, section = sections.pop(0)
        for name, field in section.model_fields.items() if section else ():
            below = section_of(field)
            if below is None:
                yield f"{prefix}.{name}"
            else:
                sections.append((f"{prefix}.{name}", below))


def _plain(option: str) -> str:
    """Return an option's name as in SETTINGS: in lower case, with dashes between words but not before them."""
    return option.lstrip("-").lower().replace("_", "-")


def no_epochs(words: Sequence[str], finetunes: bool) -> bool:
    """Return whether an option asks for a number of epochs, which pre-training doesn't have: it ends at its target."""
    names = (_plain(word.partition("=")[0]) for word in words if word.startswith("-"))
    return not finetunes and any(SETTINGS.get(name) == _EPOCHS for name in names)
