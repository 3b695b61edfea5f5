"""Hyper-parameters tuned at one global batch, carried over to another: the square-root rule for Adam.

With k = batch / batch they were tuned at: rate times sqrt(k), 1 - beta times k, epsilon over sqrt(k) (Malladi et al.
2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287). Steps are divided by k, so
that the schedule spans the same samples, and weight decay is multiplied by sqrt(k), so that rate * decay summed over
the run stays the same: these two are ours. The rule holds for Adam; no publication extends it to LAMB.
"""

import math

from bertbench.config.system import System


def scaled(system: System) -> System:
    """Return the system with its optimizer and schedule scaled from `scale_from_batch`, where it gives one."""
    if system.scale_from_batch is None:
        return system
    ratio = system.global_batch_size / system.scale_from_batch
    root, given, schedule = math.sqrt(ratio), system.optimizer, system.schedule
    optimizer = given.model_copy(
        update={
            "learning_rate": given.learning_rate * root,
            "beta1": 1 - (1 - given.beta1) * ratio,
            "beta2": 1 - (1 - given.beta2) * ratio,
            "epsilon": given.epsilon / root,
            "weight_decay": given.weight_decay * root,
        }
    )
    steps = {
        "max_steps": round(schedule.max_steps / ratio),
        "decay_steps": round((schedule.decay_steps or schedule.max_steps) / ratio),
        "warmup_steps": round(schedule.warmup_steps / ratio),
        "start_warmup_step": round(schedule.start_warmup_step / ratio),
        "end_learning_rate": schedule.end_learning_rate * root,
    }
    # Done once: the configuration that a run writes down is the one that it used.
    return system.model_copy(
        update={"optimizer": optimizer, "schedule": schedule.model_copy(update=steps), "scale_from_batch": None}
    )
