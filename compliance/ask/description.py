"""Ask about names and counts that differ between a log and its system description."""

import re
from collections.abc import Iterator

from compliance.ask.question import Question, Topic
from compliance.read.case import Case
from compliance.read.description import count_in_all_nodes
from compliance.read.run import RunFacts

DESCRIPTION = Topic(
    "description", "Do the log and the system description agree?",
    "both have the same submitter and status; d_batch_size x accumulation x accelerators is the global batch size, or "
    "half of it if samples are packed",
)  # fmt: skip
_NAMES = (("submission_org", "submitter"), ("submission_status", "status"))


def ask(case: Case) -> Iterator[Question]:
    """Ask about a global batch size that doesn't fit the number of accelerators in the description."""
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
        figure = f"{factors}, but global_batch_size {batch:,.0f}"
        yield DESCRIPTION.question(figure, case.all("d_batch_size")[0].line)


def ask_names(facts: RunFacts, described: dict[str, str]) -> Iterator[Question]:
    """Ask about a submitter or a status that differs from the one in the description."""
    for key, field in _NAMES:
        event, stated = facts.first(key), described.get(field)
        if event is None or not isinstance(event.value, str) or stated is None:
            continue
        if not _agrees(field, event.value, stated):
            figure = f"{key} is {event.value[:80]!r}, but the description's {field} is {stated[:80]!r}"
            yield DESCRIPTION.question(figure, event.line)


def _agrees(field: str, logged: str, described: str) -> bool:
    in_log = _letters(logged)
    in_description = _letters(described)
    if field == "status":  # logs use fewer words, and a preview may be on premises
        words = in_log + in_description
        return not ("cloud" in words and "onprem" in words)
    return in_log in in_description or in_description in in_log or "placeholder" in in_log


def _letters(text: str) -> str:
    """Return a text in lower case, without hyphens and spaces: people spell names differently."""
    return re.sub(r"[\W_]+", "", text.casefold())
