"""Numbers of buckets and scalings of the threshold: limits worked out by hand, and the command on a tiny study."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertbench.cli import main
from bertbench.optim.clip import contribution_limit
from lab.paths import STUDIES
from lab.study.buckets import REFERENCE, BucketsDefinition
from lab.study.clip_ranks import RanksDefinition
from lab.study.definition import read_study
from lab.study.language_study import initial_model
from lab.study.language_trial import to_target
from lab.study.virtual_ranks import VirtualRanks
from tests.lab.study.test_ranks import SMALL

OF_CLIP = ("space", "tuning", "stopping", "bucket_mb")
TINY: dict[str, Any] = {
    **{name: value for name, value in SMALL.items() if name not in OF_CLIP},
    "ranks": 4,
    "max_norm": 0.1,
    "bucket_mb": {"2": 0.002, "4": 0.0008},
    "exponents": [0, 0.5, 1],
}


def defined(**changes: object) -> BucketsDefinition:
    return BucketsDefinition.model_validate_json(json.dumps({**TINY, **changes}))


@pytest.mark.parametrize(("exponent", "limit"), [(0.0, 2.0), (0.5, 1.0), (1.0, 0.5)])
def test_the_limit_of_a_bucket_of_four_on_three_ranks(exponent: float, limit: float) -> None:
    assert contribution_limit(6.0, 3, 4, exponent) == limit  # 6 / 3 = 2, over 1, 2 and 4
    assert contribution_limit(6.0, 3, 1, exponent) == 2.0, "one bucket has the whole threshold"


@pytest.mark.parametrize(("exponent", "norm"), [(0.0, 1e-3), (0.5, 5e-4), (1.0, 2.5e-4)])
def test_every_clipped_bucket_has_the_norm_of_its_limit(exponent: float, norm: float) -> None:
    definition = defined(ranks=1, max_norm=1e-3)
    model = initial_model(definition.model, 1)
    ranks = definition.virtual_ranks(
        next(arm for arm in definition.arms() if arm.choices == {"buckets": 4, "exponent": exponent}), model
    )
    ranks.reduce(definition.language().shares(np.random.default_rng(1), 8, 1))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    norms = [torch.cat([gradients[name].flatten() for name in names]).norm().item() for names in ranks.buckets]
    assert norms == pytest.approx([norm] * 4, rel=1e-5)


def test_one_bucket_is_mode_before() -> None:
    definition = defined()
    model = initial_model(definition.model, 3)
    before = VirtualRanks(model, "before", 0.1, 4, None)
    found = to_target(definition, definition.optimizer, model, before.reduce, 4, 3)
    assert definition.run_trial(REFERENCE, {}, 3, math.inf) == found
    shares = definition.language().shares(np.random.default_rng(1), 8, 4)
    gradients = []
    for mode in ("before", "bucket"):
        model = initial_model(definition.model, 3)
        VirtualRanks(model, mode, 0.1, 4, None, 1.0).reduce(shares)  # the model fits into one bucket
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-8)  # the norm sums in another order


def test_the_command_resumes_and_sets_every_arm_beside_one_bucket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "definition.json").write_text(json.dumps(TINY))
    words = ["lab", "buckets", "--seeds", "2", "--definition", str(tmp_path / "definition.json")]
    words += ["--out", str(tmp_path / "out")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    others = [f"{buckets}_buckets_e{exponent}" for buckets in (2, 4) for exponent in (0, 0.5, 1)]
    assert [(row["arm"], row["seed"]) for row in found["rows"]] == [
        (arm, seed) for seed in (1, 2) for arm in ("before", *others)
    ]
    assert {pair["difference"]["against"] for pair in found["comparisons"]} <= {"before"}
    clipped = {row["arm"]: row["clipped"] for row in found["rows"] if row["seed"] == 1}
    assert clipped["4_buckets_e0"] < clipped["4_buckets_e1"], "a lower threshold clips more"
    assert found["origin"]["torch"] == torch.__version__
    lines = tmp_path / "out" / "trials.jsonl"
    whole = lines.read_text()
    lines.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    assert main(words) == 0
    assert lines.read_text().splitlines()[:-1] == whole.splitlines()[:-1], "only the missing run is run"
    head, *table = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "clipped"
    assert [line.split()[0] for line in table[: 1 + len(others)]] == ["before", *others]
    assert "4_buckets_e1" in (tmp_path / "out" / "study.html").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 3}, "ranks 3 don't divide global_batch_size 8"),
        ({"bucket_mb": {"4": 0.002}}, "bucket_mb 0.002 makes 2 buckets of this model, expected 4; choose a smaller"),
    ],
)
def test_a_mistake_is_one_message(
    changes: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "definition.json").write_text(json.dumps({**TINY, **changes}))
    words = ["lab", "buckets", "--definition", str(tmp_path / "definition.json"), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_study_that_comes_with_the_project_has_the_values_of_the_study_of_clip_modes() -> None:
    definition = read_study(STUDIES / "buckets.json", BucketsDefinition)
    definition.check_buckets()
    assert len(definition.arms()) == 10
    recorded = json.loads((STUDIES.parents[1] / "results" / "studies" / "clip_ranks.json").read_text())
    (values,) = [tuned for tuned in recorded["tuned"] if tuned["arm"] == "before_64"]
    optimizer = definition.optimizer
    assert (optimizer.learning_rate, definition.max_norm) == (values["learning_rate"], values["max_norm"])
    betas = (1 - values["one_minus_beta1"], 1 - values["one_minus_beta2"])
    assert (optimizer.beta1, optimizer.beta2) == pytest.approx(betas)
    of_clip = read_study(STUDIES / "clip_ranks.json", RanksDefinition)
    for name in ("model", "words", "schedule", "global_batch_size", "evaluation"):
        assert getattr(definition, name) == getattr(of_clip, name), name
