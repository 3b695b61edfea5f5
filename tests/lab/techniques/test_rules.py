"""A technique is named by words, and refuses by name the settings that it can't go with."""

import pytest

from bertbench.cli.main import main
from bertbench.common.errors import ConfigError
from bertbench.training.technique import EVERY_STEP
from lab.techniques.delayed import Delayed
from lab.techniques.read import TECHNIQUES, read_technique
from lab.techniques.topk import TopK
from tests.conftest import Captured, Printed, Tiny


def test_options_have_types_and_every_step_is_the_product() -> None:
    assert read_technique(["topk", "share=0.2"]) == TopK(share=0.2)
    assert read_technique(["delayed", "steps=2", "compression=bf16"]) == Delayed(steps=2, compression="bf16")
    assert read_technique(["lab.techniques.topk:TopK", "share=0.2"]) == TopK(share=0.2)
    assert read_technique(["every_step"]) == EVERY_STEP


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("topkk", "topk?"),
        ("topk rank=2", "'rank=2'"),
        ("topk share=2", "share: "),
        ("nowhere.to_be:Found", "nowhere.to_be:Found"),
        ("pathlib:Path", "Technique"),
    ],
)
def test_wrong_words_are_one_error(words: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_technique(words.split())
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"--technique {words.split(maxsplit=1)[0]}")
    assert expected in line


ALL = [name for name in TECHNIQUES if name != "every_step"]
ALONE = ["local_sgd", "diloco"]
REFUSED: dict[str, tuple[list[str], str]] = {
    "optimizer.sharded=true": (ALL, "optimizer.sharded true doesn't go with a technique"),
    "precision.compute=fp16": (ALL, "precision.compute fp16 doesn't go with a technique"),
    "precision.compute=fp8 model.hidden_size=16 model.feed_forward_size=32": (ALL, "precision.compute fp8 doesn't"),
    "communication.compression=bf16": (ALL, "communication.compression bf16 doesn't go with a technique"),
    "compute.compile=graphs data.equal_counts=true": (ALL, "compute.compile graphs doesn't go with a technique"),
    "parallel.fully_shard=true": (ALL, "parallel splits the model, but techniques need whole models"),
    "optimizer.ema_decay=0.9": (ALONE, "optimizer.ema_decay 0.9 averages over steps"),
}


@pytest.mark.parametrize("settings", REFUSED)
def test_settings_that_do_not_go_with_a_technique_are_refused_by_name(tiny: Tiny, settings: str) -> None:
    system = tiny(*settings.split())
    EVERY_STEP.check(system)
    refusing, expected = REFUSED[settings]
    for name in ALL:
        technique = read_technique([name])
        if name in refusing:
            with pytest.raises(ConfigError, match=expected):
                technique.check(system)
        else:
            technique.check(system)


def test_all_that_is_wrong_is_reported_together(tiny: Tiny) -> None:
    with pytest.raises(ConfigError) as caught:
        read_technique(["diloco"]).check(tiny("optimizer.sharded=true", "optimizer.ema_decay=0.9"))
    assert len(str(caught.value).splitlines()) == 2


def test_a_closed_run_has_no_technique(printed: Printed) -> None:
    said = printed("lab", "train", "dgxa100_n1", "--technique", "int8", code=2)
    assert "hardware.division closed doesn't go with a technique of the laboratory; set it to open" in said


def test_a_setting_without_set_is_a_mistake_that_names_it(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["lab", "train", "cpu_demo", "--technique", "int8", "--clip.mode", "none"])
    assert "did you mean --set clip.mode=VALUE?" in capsys.readouterr().err
