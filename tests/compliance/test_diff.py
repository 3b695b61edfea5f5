import json
from pathlib import Path

from tests.compliance.logs import at, closed, compliance, demo, write


def test_a_log_does_not_differ_from_itself(tmp_path: Path) -> None:
    path = str(write(tmp_path / "result_0.txt", closed()))
    done = compliance("diff", path, path)
    assert (done.returncode, done.stdout.decode()) == (0, f"{path} and {path}: no differences\n")


def test_hyper_parameters_cadence_results_and_software_are_compared(tmp_path: Path) -> None:
    other = closed()
    other[at(other, "opt_base_learning_rate")]["value"] = 4.25e-4
    other[at(other, "run_stop")]["time_ms"] += 10_000
    del other[at(other, "eval_accuracy")]
    sides = [tmp_path / side / "results" / "toy" / "bert" / "result_0.txt" for side in "ab"]
    for path, records, framework in zip(sides, (closed(), other), ("PyTorch 2.1", "PyTorch 2.13"), strict=True):
        write(path, records)
        write(path.parents[3] / "systems" / "toy.json", json.dumps({"framework": framework, "cooling": "air"}))
    done = compliance("diff", "--json", str(sides[0].parent), str(sides[1].parent))
    found = json.loads(done.stdout)
    values = {(one["section"], one["name"]): (one["a"], one["b"]) for one in found["differences"]}
    assert (done.returncode, found["a"]) == (1, str(sides[0].parent))
    assert values["hyper-parameters", "opt_base_learning_rate"] == (3e-3, 4.25e-4)
    assert values["cadence", "first evaluation after"] == (150_080, 300_160)
    assert values["result", "time to train s"] == (131.252, 141.252)
    assert values["system", "framework"] == ("PyTorch 2.1", "PyTorch 2.13")
    assert ("system", "cooling") not in values
    assert ("hyper-parameters", "opt_lamb_beta_1") not in values


def test_what_only_one_side_tells_is_shown_as_missing_on_the_other(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.txt", closed()), write(tmp_path / "b.txt", demo())
    text = compliance("diff", str(a), str(b)).stdout.decode()
    (row,) = [line for line in text.splitlines() if line.startswith("opt_epsilon")]
    assert row.split() == ["opt_epsilon", "1e-08", "-"]


def test_what_cannot_be_read_cannot_be_compared(tmp_path: Path) -> None:
    path = str(write(tmp_path / "result_0.txt", closed()))
    done = compliance("diff", path, str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"found nothing there" in done.stderr
