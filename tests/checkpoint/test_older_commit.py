"""A snapshot of cpu_demo that commit 379a59b wrote, before the modules had their present rooms, still loads.

Its run: seed 1234, two ranks, and the overrides below, which keep the files small. The digest was computed at that
commit, of the state that it loaded itself.
"""

import hashlib
from pathlib import Path

from bertbench.checkpoint.resumption import Resumption
from bertbench.checkpoint.snapshot_folder import verified
from bertbench.checkpoint.snapshots import Snapshots
from bertbench.config import load_system
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from bertbench.training.whole_trainer import WholeTrainer
from tests.ranks import run_ranks

SNAPSHOT = Path(__file__).with_name("snapshot_379a59b") / "step_10"
SMALL = (
    "model.hidden_size=16", "model.feed_forward_size=24", "model.layers=1", "schedule.max_steps=20",
    "schedule.warmup_steps=20", "evaluation.interval_samples=1280",
    # what the demo had then
    "model.attention_heads=8", "optimizer.name=adam", "optimizer.learning_rate=0.003", "optimizer.ema_decay=0",
    "model.initial_weights=random", "optimizer.muon.ns_steps=5",
    "schedule.decay_steps=2400", "schedule.end_learning_rate=0",
)  # fmt: skip
LOADED = "b1cbe430635e2064eafc32b91bc4768760a0f9570c063f72d93fc6e8b55d29f3"


def test_a_setting_newer_than_the_snapshot_is_not_a_change() -> None:
    meta = verified(SNAPSHOT)
    del meta.config["clip"]["mode"], meta.config["loss"]
    meta.config["schedule"]["warmup_steps"] = 20  # it had 100, which no run of 20 steps may have any more
    resumption = Resumption(Path("result_0.txt"), SNAPSHOT, meta)
    then = (*SMALL, "precision.compute=fp32")  # the demo measures since
    assert resumption.changes(load_system("cpu_demo", then)) == []
    changed = load_system("cpu_demo", (*then, "clip.mode=bucket"))
    assert resumption.changes(changed) == ["clip.mode: was 'after', is 'bucket'"]


def digest_of_loaded(world: World, folder: Path) -> str:
    system = load_system("cpu_demo", SMALL)
    trainer = WholeTrainer(system, world, 99)  # another seed: what isn't loaded differs
    configuration = system.model_dump(mode="json", by_alias=True)
    files = ResultFiles(folder / "result_0.txt") if world.leads else None
    snapshots = Snapshots(system, configuration, world, 99, files)
    snapshots.load(trainer, SNAPSHOT, verified(SNAPSHOT))
    digest, state = hashlib.sha256(), trainer.state()
    for name in sorted(state):
        digest.update(name.encode() + state[name].contiguous().numpy().tobytes())
    snapshots.close()
    trainer.close()
    return digest.hexdigest()


def test_a_snapshot_of_an_older_commit_loads_to_the_same_state(tmp_path: Path) -> None:
    assert run_ranks(2, digest_of_loaded, tmp_path) == [LOADED, LOADED]
