"""Links from the architecture page to lines of code lead to the lines that they name."""

import re

import pytest

from tests.docs.listing import REPOSITORY

PAGE = (REPOSITORY / "docs" / "architecture.md").read_text()
LINKS = re.findall(r"\[`([^`]+)`\]\(\.\./([^)#]+)#L(\d+)\)", PAGE)


@pytest.mark.parametrize(("code", "path", "number"), LINKS)
def test_a_link_leads_to_the_line_that_it_names(code: str, path: str, number: str) -> None:
    lines = (REPOSITORY / path).read_text().splitlines()
    places = [place for place, line in enumerate(lines, start=1) if code in line]
    assert int(number) in places, f"{path} has it in {places}"


def test_the_page_links_to_the_loss_the_clipping_and_the_end_of_the_clock() -> None:
    first = PAGE[PAGE.index("## Three lines to know") : PAGE.index("## Packages")]
    linked = r"`(return weighted_loss\(|self\._begin\(bucket, self\._clip|self\.log\.end\(constants\.RUN_STOP)"
    assert re.findall(linked, first) == [
        "return weighted_loss(",
        "self._begin(bucket, self._clip",
        "self.log.end(constants.RUN_STOP",
    ]
