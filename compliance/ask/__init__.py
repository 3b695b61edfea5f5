"""Seven questions that a reviewer may put to a submitter. None of them can change a verdict."""

from collections.abc import Iterator, Mapping, Sequence

from compliance.ask import accuracies, copies, description, pace, samples, settings, speed
from compliance.ask.question import NamedRun, Question, Topic
from compliance.read.case import Case

TOPICS: tuple[Topic, ...] = (
    samples.SAMPLES,
    accuracies.ACCURACIES,
    pace.PACE,
    description.DESCRIPTION,
    copies.COPIED_RUN,
    speed.SPEED,
    settings.SETTINGS,
)


def about_log(case: Case) -> Iterator[Question]:
    """Ask about one log."""
    yield from samples.ask(case)
    yield from accuracies.ask(case)
    yield from pace.ask(case)
    yield from description.ask(case)


def about_runs(runs: Sequence[NamedRun]) -> Mapping[str, list[Question]]:
    """Ask about the runs of a result together; return the questions by log."""
    asked: dict[str, list[Question]] = {}
    for ask in (copies.ask, speed.ask, settings.ask):
        for log, question in ask(runs):
            asked.setdefault(log, []).append(question)
    return asked
