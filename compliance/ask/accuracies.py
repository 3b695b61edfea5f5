"""Ask about accuracies that are not shares, such as percentages: the rules only ask for one below 1."""

from collections.abc import Iterator

from compliance.ask.question import Question, Topic
from compliance.read.case import Case
from compliance.read.record import shown

ACCURACIES = Topic(
    "accuracies", "Are the accuracies shares of the masked tokens?", "accuracies lie between 0 and 1"
)  # fmt: skip


def ask(case: Case) -> Iterator[Question]:
    """Ask once about all accuracies above 1, and once about all below 0."""
    logged = [event for event in case.all("eval_accuracy") if isinstance(event.value, int | float)]
    above = [event for event in logged if event.value > 1]
    below = [event for event in logged if event.value < 0]
    for where, events in (("above 1", above), ("below 0", below)):
        if events:
            first = events[0]
            noun = "accuracy" if len(events) == 1 else "accuracies"
            figure = f"{len(events):,} {noun} {where}, first {shown(first.value)} on line {first.line}"
            yield ACCURACIES.question(figure, first.line)
