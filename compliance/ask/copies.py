"""Ask about runs whose whole sequence of accuracies, or of times since run_start, is another run's."""

from collections.abc import Iterator, Sequence

from compliance.ask.question import NamedRun, Question, Topic

COPIED_RUN = Topic(
    "copied-run", "Has each run its own measurements?",
    "none shares all its accuracies, or all times of its evaluations, with another run",
)  # fmt: skip
_FEWEST = 4
"""A sequence this long isn't repeated by chance; shorter ones count if accuracies and times are both equal."""


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
            if run.facts.is_fine:  # whole seconds repeat
                sequences.append(("times", times))
        for kind, sequence in sequences:
            other = first.setdefault((kind, sequence), run.log)
            if other != run.log:
                yield run.log, COPIED_RUN.question(f"all {len(course)} {kind} of {other}")
                break
