"""Names that the writers of a run's files share with their readers. Loads neither torch nor the judge.

timeline.jsonl: what the run did and since when, over all its attempts; one record a line, never cut.

`{"time": SECONDS SINCE 1970, "doing": NAME}`
    The run does NAME from then on. `waited_s`: rank 0's waits for samples since its start. `step`: steps taken when a
    snapshot's copy began. `was` queued: before it, the job was in a queue unless another record says otherwise.
    `status`: of a finished run.
`{"time": ..., "resumed": STEP, "sign": SECONDS SINCE 1970}`
    Work after the snapshot of that step is lost. `sign`: the last sign of life, if known.
"""

TIMELINE = "timeline.jsonl"
QUEUED = "queued"
START_UP = "start-up"
COMPILE = "compile"
TRAINING = "training"
EVALUATION = "evaluation"
SNAPSHOT = "snapshot"
WAITING = "waiting"
LOST = "lost work"
IDLE = "idle"
BUCKETS = (QUEUED, START_UP, COMPILE, TRAINING, EVALUATION, SNAPSHOT, WAITING, LOST, IDLE)
"""Parts of a run's wall clock; docs/reliability.md defines them."""

STARTUP_KEY = "startup"
"""Key of a log's event that tells where the time before run_start went."""
POWER = "power"
"""Folder of what power meters read, in a run's folder."""
