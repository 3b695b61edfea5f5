"""Ask where a log and its system description name or count otherwise."""

import re
from collections.abc import Iterator

from compliance.ask.question import Question, Topic
from compliance.read.case import Case
from compliance.read.description import in_all
from compliance.read.run import RunFacts

DESCRIPTION = Topic(
    "description", "Do log and system description agree?",
    "the same submitter and status; d_batch_size x accumulation x accelerators is the batch, half of it if packed",
)  # fmt: skip
_NAMES = (("submission_org", "submitter"), ("submission_status", "status"))


def ask(case: Case) -> Iterator[Question]:
    """Ask about a batch that the described accelerators don't make."""
    batch, parts = case.batch or 0.0, case.number("gradient_accumulation_steps") or 1.0
    accelerators, each = in_all(case.system) or 0, case.number("d_batch_size") or 0.0
    whole = parts * accelerators * each
    if whole <= 0 or batch <= 0:
        return
    # packed rows hold two samples; several accelerators may share a model
    if batch > 2 * whole or (batch % whole and whole % batch):
        line = case.all("d_batch_size")[0].line
        figure = f"d_batch_size {each:g} x accumulation {parts:g} x {accelerators:,} accelerators, batch {batch:,.0f}"
        yield DESCRIPTION.question(figure, line)


def ask_names(facts: RunFacts, described: dict[str, str]) -> Iterator[Question]:
    """Ask about a submitter, or a status, that the description names otherwise."""
    for key, field in _NAMES:
        event, stated = facts.first(key), described.get(field)
        if event is None or not isinstance(event.value, str) or stated is None:
            continue
        if not _agrees(field, event.value, stated):
            yield DESCRIPTION.question(f"{key} {event.value[:80]!r}, described as {stated[:80]!r}", event.line)


def _agrees(field: str, logged: str, described: str) -> bool:
    one, other = _letters(logged), _letters(described)
    if field == "status":  # logs use fewer words, and a preview may be on premises
        return not ("cloud" in one + other and "onprem" in one + other)
    return one in other or other in one or "placeholder" in one


def _letters(text: str) -> str:
    """Return a text without case, hyphens and spaces, which people write differently."""
    return re.sub(r"[\W_]+", "", text.casefold())
