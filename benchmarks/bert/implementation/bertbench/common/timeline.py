"""timeline.jsonl: what a run did from when on, over all its attempts; a record a line, never cut.

`{"time": SECONDS SINCE 1970, "doing": NAME}`
    From then on it does that. With `waited_s`: how long rank 0 has waited for samples since its start; `step`: steps
    taken when a snapshot's copy began; `was` queued: where nobody wrote before it, the job was in a queue; `status`: of
    a run that came to its end.
`{"time": ..., "resumed": STEP, "sign": SECONDS SINCE 1970}`
    What was done after the snapshot of that step is lost; its last sign of life, where one is known.
"""

QUEUED, START_UP, COMPILE, TRAINING = "queued", "start-up", "compile", "training"
EVALUATION, SNAPSHOT, WAITING, LOST, IDLE = "evaluation", "snapshot", "waiting", "lost work", "idle"
BUCKETS = (QUEUED, START_UP, COMPILE, TRAINING, EVALUATION, SNAPSHOT, WAITING, LOST, IDLE)
"""What the wall clock of a run is divided into; docs/reliability.md says what each holds."""
TIMELINE = "timeline.jsonl"
