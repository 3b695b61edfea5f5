"""Ask about runs whose whole sequence of accuracies, or of times since run_start, equals another run's."""

from collections.abc import Iterator, Sequence

from compliance.ask.question import NamedRun, Question, Topic

COPIED_RUN = Topic(
    "copied-run", "Does each run have its own measurements?",
    "no two runs have all accuracies, or the times of all evaluations, in common",
)  # fmt: skip
_FEWEST = 4
"""A sequence this long doesn't repeat by chance; in a shorter one, both accuracies and times must be equal."""


def ask(runs: Sequence[NamedRun]) -> Iterator[tuple[str, Question]]:
    """Yield the name of each log that shares its measurements with an earlier one, and the question."""
    first: dict[tuple[str, tuple[float, ...]], str] = {}
    for run in runs:
        course = run.facts.course
        if not course:
            continue
        accuracies = tuple(accuracy for _, accuracy in course)
        times = tuple(round(seconds, 3) for seconds, _ in course)
        sequences = [("accuracies and times", accuracies + times)]
        if len(course) >= _FEWEST:
            sequences.append(("accuracies", accuracies))
            if run.facts.is_fine:  # whole seconds may repeat by chance
                sequences.append(("times", times))
        for kind, sequence in sequences:
            other = first.setdefault((kind, sequence), run.log)
            if other != run.log:
                yield run.log, COPIED_RUN.question(f"all {len(course)} {kind} equal those of {other}")
                break
