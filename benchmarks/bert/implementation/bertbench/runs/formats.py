"""Define names that the writers of a run's files share with their readers. This loads neither torch nor the judge.

timeline.jsonl says what the run did from which time on, over all its attempts; each line is a record, and none is ever
removed:

`{"time": SECONDS SINCE 1970, "doing": NAME}`
    The run does NAME from then on. `waited_s`: for how long rank 0 has waited for samples since it started. `step`: the
    steps taken when the copy for a snapshot began. `was` queued: before this, the job was in a queue, unless another
    record says otherwise. `status`: how a finished run ended.
`{"time": ..., "resumed": STEP, "sign": SECONDS SINCE 1970}`
    The run resumed from the snapshot of that step, so later work is lost. `sign`: the last heartbeat, if known.
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
"""The parts of a run's wall-clock time; docs/reliability.md defines them."""

STARTUP_KEY = "startup"
"""Key of the log's event that says where the time before run_start went."""
ENERGY_KEY = "energy"
"""Key of the log's event with the joules from run_start to run_stop, as the nodes' energy counters give them."""
