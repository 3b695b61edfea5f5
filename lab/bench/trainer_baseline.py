"""Train by Hugging Face's Trainer on the same shards to the same target: the baseline for `bertbench train`.

Model, batch, schedule, evaluation interval and target come from the system file. It is set up as a careful user would:
fused AdamW, batches that are padded to their longest sample and read a batch at a time, no logging and no saving. Its
first step isn't timed.
"""

import json
import math
import os
import sys
import tempfile
import time
from typing import Any, cast

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from bertbench.checkpoint.tensor_names import pieces, take_apart
from bertbench.common.seeding import derive
from bertbench.config import System, load_system
from bertbench.data.store.columns import Columns
from bertbench.data.store.dataset import Dataset, MappedShard
from bertbench.loading.inputs import open_data
from bertbench.model.loss import IGNORED
from bertbench.training.task import initial_model
from lab.bench.stock import PaddedBatch, padded, stock_model
from lab.bench.whole_run import Course, SetUp, Trained

_EVALUATED = 256  # samples in an evaluation batch


def train_baseline(system: System, seed: int, steps: int | None, setup: SetUp) -> Trained:
    """Train in this process, one of `setup`'s ranks: `steps` steps without evaluation, or else to the target."""
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // setup.ranks))
    own_seed = derive(seed, "Trainer") % 2**31
    transformers.set_seed(own_seed)
    model = stock_model(system.model.shape())
    training, evaluation = map(_Samples, open_data(system))
    watch = _Watch(system.evaluation.target)
    if setup.ours:
        parts = take_apart(pieces(system.model.shape()), initial_model(system, seed).state_dict())
        model.load_state_dict({piece.hugging_face: tensor for piece, tensor in parts.items()}, strict=False)
    optimizer = _MuonAndAdamW(model, system) if setup.ours else _adamw([*model.parameters()], system)
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=model,
            args=_arguments(system, own_seed, steps, setup, folder),
            train_dataset=training,
            eval_dataset=evaluation,
            data_collator=lambda batch: cast("Any", batch),  # the dataset returns whole batches
            optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, system.learning_rate.rate)),
            callbacks=[watch],
            preprocess_logits_for_metrics=_predictions,
            compute_metrics=_accuracy,
        )
        trainer.train()
    steps_taken = steps or trainer.state.global_step
    return Trained(watch.ended - watch.began, steps_taken * system.global_batch_size, watch.reached, watch.course)


def _arguments(
    system: System, seed: int, steps: int | None, setup: SetUp, folder: str
) -> transformers.TrainingArguments:
    return transformers.TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        max_steps=steps + 1 if steps else system.max_steps,  # the first step isn't timed
        per_device_train_batch_size=system.global_batch_size // setup.ranks,
        per_device_eval_batch_size=_EVALUATED,
        max_grad_norm=system.clip.max_norm,
        eval_strategy="no" if steps else "steps",
        eval_steps=math.ceil(system.evaluation_interval / system.global_batch_size),
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels", "next_sentence_label"],
        bf16=setup.precision == "bf16",
        torch_compile=setup.extra == "torch_compile",
        dataloader_num_workers=int(setup.extra == "a worker"),
        dataloader_persistent_workers=setup.extra == "a worker",
        seed=seed,
        ddp_backend="gloo" if setup.ranks > 1 else None,
        ddp_find_unused_parameters=False if setup.ranks > 1 else None,
    )


def _adamw(parameters: list[torch.nn.Parameter], system: System) -> torch.optim.Optimizer:
    """Return fused AdamW, without weight decay for biases and LayerNorms."""
    options = system.optimizer
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() <= 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=1.0,  # the schedule multiplies it by the rate
        betas=(options.beta1, options.beta2),
        eps=options.epsilon,
        fused=True,
    )


class _MuonAndAdamW(torch.optim.Optimizer):
    """Our optimizer, built from torch's: Muon updates the encoder's matrices, fused AdamW everything else."""

    def __init__(self, model: Any, system: System) -> None:
        options = system.optimizer
        matrices = [parameter for parameter in model.bert.encoder.parameters() if parameter.dim() > 1]
        taken = set(matrices)
        muon = torch.optim.Muon(
            matrices,
            lr=1.0,
            weight_decay=options.weight_decay,
            momentum=options.muon.momentum,
            nesterov=True,
            ns_steps=options.muon.ns_steps,
            adjust_lr_fn="match_rms_adamw",  # scales updates like ours
        )
        adamw = _adamw([parameter for parameter in model.parameters() if parameter not in taken], system)
        self._parts = (muon, adamw)
        super().__init__([*muon.param_groups, *adamw.param_groups], {})

    def step(self, closure: Any = None) -> Any:
        """Update all weights; the schedule writes its rates into the groups of this optimizer."""
        groups = iter(self.param_groups)
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = next(groups)["lr"]
            part.step()


class _Samples(TorchDataset[PaddedBatch]):
    """A split of the data in memory, read a batch at a time, which is faster than sample by sample."""

    def __init__(self, dataset: Dataset) -> None:
        folder, shards = dataset.folder / dataset.name, dataset.split.shards
        self._content = Columns.joined([MappedShard(folder / shard.name, shard.samples).content() for shard in shards])

    def __len__(self) -> int:
        return len(self._content.lengths)

    def __getitems__(self, ids: list[int]) -> PaddedBatch:
        """Return the samples with these ids, padded to the longest; torch's loader calls this for whole batches."""
        return padded(self._content.take(np.array(ids)))


class _Watch(transformers.TrainerCallback):
    """Records when training began (after its first step) and ended; stops it at the target."""

    def __init__(self, target: float) -> None:
        self._target = target
        self.began = self.ended = 0.0
        self.reached = False
        self.course: Course = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Start the clock after the first step, which compiles."""
        self.began = self.began or time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop the clock."""
        self.ended = time.perf_counter()

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Stop training if the target is reached, in the same way as the Trainer stops after its last step."""
        accuracy = given["metrics"]["eval_accuracy"]
        self.course.append((time.perf_counter() - self.began, accuracy))
        self.reached = accuracy >= self._target
        control.should_training_stop = control.should_training_stop or self.reached


def _predictions(logits: Any, _: Any) -> Tensor:
    """Return the most probable token at each position: the scores of all evaluation samples would fill the memory."""
    return logits[0].argmax(-1)


def _accuracy(found: Any) -> dict[str, float]:
    """Return correct predictions divided by all masked tokens, as in MLPerf."""
    predictions_SN, (labels_SN, _) = found
    wanted = labels_SN != IGNORED
    return {"accuracy": float((predictions_SN[wanted] == labels_SN[wanted]).mean())}


def main() -> None:
    """Train according to the JSON on the command line; rank 0 prints the outcome."""
    system, overrides, seed, steps, setup = json.loads(sys.argv[1])
    trained = train_baseline(load_system(system, overrides), seed, steps, SetUp(*setup))
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(trained))


if __name__ == "__main__":
    main()
