"""`lab ideas`: an idea and its plain alternative must agree before they are timed."""

import pytest
import torch

from bertbench.model.linear import onednn_multiplies
from bertbench.model.shape import BertShape
from lab.bench.ideas import IDEAS, Trial, TrialInputs, rows_of_idea, timed_pair
from tests.conftest import Answer

TINY = BertShape(vocab_size=61, hidden_size=6, layers=2, attention_heads=2, feed_forward_size=7, max_positions=96)
SETTING = TrialInputs(TINY, seed=1, sequences=2)
ROWS = {"attention": 3 if onednn_multiplies(torch.bfloat16) else 2}


@pytest.mark.parametrize("idea", IDEAS)
def test_an_idea_agrees_with_its_plain_alternative_and_is_timed(idea: str) -> None:
    rows = rows_of_idea(idea, SETTING, 2)
    assert len(rows) == ROWS.get(idea, 1)
    for row in rows:
        assert row["idea"] == idea
        assert min(row["plain_ms"], row["ours_ms"], row["ratio"]) > 0
        assert row["ratio_low"] is row["ratio_high"] is None, "two rounds give no interval"


def test_an_idea_that_disagrees_is_not_timed() -> None:
    ours = iter([1.0002])  # a second call would raise StopIteration
    trial = Trial("plain code", "a number", (lambda: (torch.ones(1),), lambda: (torch.full((1,), next(ours)),)))
    with pytest.raises(AssertionError, match="not close"):
        timed_pair(trial, 3)


def test_the_command_prints_the_rows_of_all_ideas(answer: Answer) -> None:
    rows = answer("lab", "ideas", "--rounds", 1)
    assert list(dict.fromkeys(row["idea"] for row in rows)) == list(IDEAS)
    of_every_answer = {"command"}
    fields = {"idea", "plain", "size", "plain_ms", "ours_ms", "ratio", "ratio_low", "ratio_high"}
    assert set(rows[0]) == of_every_answer | fields
