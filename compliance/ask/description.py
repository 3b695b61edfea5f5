"""Ask where a log and its system description name or count otherwise."""

import re
from collections.abc import Iterator

from compliance.ask.question import Question, Topic
from compliance.read.case import Case
from compliance.read.description import count_in_all_nodes
from compliance.read.run import RunFacts

DESCRIPTION = Topic(
    "description", "Do log and system description agree?",
    "the same submitter and status; d_batch_size x accumulation x accelerators is the batch, half of it if packed",
)  # fmt: skip
_NAMES = (("submission_org", "submitter"), ("submission_status", "status"))


def ask(case: Case) -> Iterator[Question]:
    """Ask about a batch that the described accelerators don't make."""
    batch = case.batch or 0.0
    local_batch = case.number("d_batch_size") or 0.0
    accumulation = case.number("gradient_accumulation_steps") or 1.0
    accelerators = count_in_all_nodes(case.system) or 0
    computed = accumulation * accelerators * local_batch
    if computed <= 0 or batch <= 0:
        return
    is_too_large = batch > 2 * computed  # packed rows hold two samples
    is_multiple = batch % computed == 0 or computed % batch == 0  # several accelerators may share a model
    if is_too_large or not is_multiple:
        factors = f"d_batch_size {local_batch:g} x accumulation {accumulation:g} x {accelerators:,} accelerators"
        yield DESCRIPTION.question(f"{factors}, batch {batch:,.0f}", case.all("d_batch_size")[0].line)


def ask_names(facts: RunFacts, described: dict[str, str]) -> Iterator[Question]:
    """Ask about a submitter, or a status, that the description names otherwise."""
    for key, field in _NAMES:
        event, stated = facts.first(key), described.get(field)
        if event is None or not isinstance(event.value, str) or stated is None:
            continue
        if not _agrees(field, event.value, stated):
            yield DESCRIPTION.question(f"{key} {event.value[:80]!r}, described as {stated[:80]!r}", event.line)


def _agrees(field: str, logged: str, described: str) -> bool:
    in_log = _letters(logged)
    in_description = _letters(described)
    if field == "status":  # logs use fewer words, and a preview may be on premises
        words = in_log + in_description
        return not ("cloud" in words and "onprem" in words)
    return in_log in in_description or in_description in in_log or "placeholder" in in_log


def _letters(text: str) -> str:
    """Return a text without case, hyphens and spaces, which people write differently."""
    return re.sub(r"[\W_]+", "", text.casefold())
