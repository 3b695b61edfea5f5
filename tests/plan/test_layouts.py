"""Memory and step time of layouts, worked out by hand."""

from operator import attrgetter

import pytest

from bertbench.config import load_system
from bertbench.config.layout import Layout
from bertbench.config.load import problems
from bertbench.plan.layout_cost import LINKS, all_reduce_seconds, exposed_seconds, step_seconds
from bertbench.plan.layouts import candidates, outlooks
from bertbench.plan.memory import memory_gb
from bertbench.plan.step_load import load_of
from tests.conftest import Answer, Printed, Tiny


def test_memory_of_a_pipeline_counts_the_microbatches_that_have_begun(tiny: Tiny) -> None:
    def activations(*overrides: str) -> float:
        sizes = ("model.layers=4", "data.global_batch_size=32", "launch.ranks_per_node=2", "parallel.pipeline=2")
        return memory_gb(tiny(*sizes, "parallel.microbatches=8", *overrides))["activations"]

    plain, all_forward = activations(), activations("parallel.schedule=gpipe")
    # 2 microbatches on the first stage, or the heads of one beside a layer of one on the last; all 8 in gpipe
    assert all_forward > 2.5 * plain
    assert activations("parallel.recompute=true") < plain


@pytest.mark.slow
def test_candidates_keep_the_work_and_the_best_layout_of_a_model_that_is_too_large_fits() -> None:
    system = load_system("bert10b_n128")
    found = list(candidates(system))
    assert {one.global_batch_size for one in found} == {2048}
    assert {one.layout.ranks for one in found} == {1024}
    few = ["hardware.number_of_nodes=8", "data.global_batch_size=128", "parallel.pipeline=1",
           "parallel.virtual_stages=1", "parallel.schedule=1f1b", "parallel.microbatches=1"]  # fmt: skip
    small = outlooks(load_system("bert10b_n128", few))
    alone = next(one for one in small if not one.system.parallel.splits)
    assert not alone.fits  # 9.8 billion weights of 16 bytes are 157 GB
    assert memory_gb(alone.system)["weights"] == pytest.approx(4 * 9.8, rel=0.01)
    best = small[0]
    assert best.fits
    assert best.seconds.total == min(one.seconds.total for one in small if one.fits)


@pytest.mark.parametrize(
    ("setting", "replaced"),
    [
        ("optimizer.impl=triton", "torch"),
        ("precision.residual=bf16", "fp32"),
        ("precision.compute=fp8", "bf16"),
        ("compute.compile=default", "none"),
        ("compute.compile=graphs", "none"),
        ("clip.mode=before", "after"),
        ("clip.mode=none", "none"),
    ],
)
def test_settings_of_whole_models_hide_no_layout_of_a_split_one(setting: str, replaced: str) -> None:
    small = ["hardware.division=open", "hardware.number_of_nodes=1", "data.global_batch_size=16"]
    name, _, _ = setting.partition("=")
    found, expected = (list(candidates(load_system("dgxa100_n1", [*small, *more]))) for more in ([setting], []))
    assert [one.parallel for one in found] == [one.parallel for one in expected]
    splitting = next(one for one in found if one.parallel.tensor > 1)
    assert attrgetter(name)(splitting) == replaced
    assert not list(problems(splitting))


def test_step_seconds_follow_the_formulas() -> None:
    system = load_system("bert10b_n128")
    seconds, load = step_seconds(system), load_of(system)
    assert system.layout == Layout(64, 2, 8, 2)
    assert seconds.stage_wait == pytest.approx(7 / (2 * 16) * (seconds.compute + seconds.imbalance + seconds.tensor))
    assert load.largest_simulated_part.tokens >= load.mean_tokens
    recomputed = step_seconds(load_system("bert10b_n128", ["parallel.recompute=true"]))
    assert recomputed.compute == pytest.approx(4 / 3 * seconds.compute)
    assert recomputed.data == seconds.data


def test_a_step_computes_at_the_data_sheet_s_rate() -> None:
    system = load_system("dgxa100_n1")
    assert step_seconds(system).compute == pytest.approx(load_of(system).flops / (8 * 312e12))


def test_gpus_without_known_links_are_refused_by_name(printed: Printed) -> None:
    card = "hardware.accelerator_model_name=NVIDIA L40S"
    assert "'NVIDIA L40S'" in printed("estimate", "bert10b_n128", "--layouts", "--set", card, code=2)


def test_an_all_reduce_takes_the_time_of_its_bytes_on_the_wire() -> None:
    links = LINKS["A100"]
    size = 2 * 336_232_258
    inside = all_reduce_seconds(links, 8, 1, size)
    assert inside == pytest.approx(2 * 7 / 8 * size / 300e9)
    between = all_reduce_seconds(links, 16, 2, size) - inside
    assert between == pytest.approx(2 * 1 / 2 * size / 8 / 25e9)


def test_a_backward_pass_hides_all_of_a_reduction_but_the_last_bucket() -> None:
    assert exposed_seconds(reduction=6.0, compute=12.0, buckets=3) == 2.0
    assert exposed_seconds(reduction=6.0, compute=3.0, buckets=3) == 6.0 - 2.0


def test_the_plan_of_a_trillion_parameters_states_the_share_of_a_rank(answer: Answer) -> None:
    hidden, words = 25_600, 30_528 // 8
    # query, key, value, output and both feed-forward matrices with 12 h^2, of which 8 ranks hold an 8th; LayerNorms and
    # the biases behind sums whole
    layer = (12 * hidden**2 + 7 * hidden) // 8 + 6 * hidden
    embeddings = (words + 512 + 2 + 2) * hidden
    first, between, last = (answer("plan", "bert1t_n384", "--rank", rank) for rank in (0, 48, 3071))
    assert first["layout"]["data"] == 6
    assert (first["parameters"], first["layers"], first["word_rows"]) == (2 * layer + embeddings, 2, words)
    assert (between["parameters"], between["word_rows"]) == (2 * layer, 0)
    # the last stage has the heads' two square matrices whole, so it is the fullest
    assert (
        last["parameters"]
        == 2 * layer + words * hidden + 2 * (hidden**2 + hidden) + 2 * hidden + words + 2 * hidden + 2
    )
    assert first["memory_gb"]["weights"] == pytest.approx(4e-9 * last["parameters"], abs=1e-3)
    assert first["memory_gb_per_gpu"] < 80


def test_the_plan_has_a_rank_s_place_in_the_grid_and_the_bytes_that_it_sends(answer: Answer) -> None:
    words = ["plan", "cpu_parallel", "--rank", 3]
    found = answer(*words)
    assert found["layout"]["coordinate"] == {"pipeline": 1, "data": 0, "tensor": 1}
    assert set(found["sent_bytes_per_step"]) == {"tensor", "pipeline", "tied words"}
