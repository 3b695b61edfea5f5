"""Exact match and F1 worked out by hand, from the definitions."""

import codecs
import json
from pathlib import Path

import pytest

from bertbench.cli.main import main
from bertbench.finetune.score import marks, normalized_answer, score, scores_by_group
from bertbench.finetune.squad import Answer, SquadQuestion
from tests.conftest import Captured, Printed


def ask(name: str, *answers: str) -> SquadQuestion:
    return SquadQuestion(name, "?", "", tuple(Answer(answer, 0) for answer in answers))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat's, a mat!", "cats mat"),
        ("an A-Team (the theatre)", "ateam theatre"),  # punctuation goes first: no article is left in A-Team
        ("  the\tan a ", ""),
        ("Été № 5", "été № 5"),  # letters keep their accents, and only ASCII punctuation goes
    ],
)
def test_texts_are_compared_without_case_punctuation_articles_and_spacing(text: str, expected: str) -> None:
    assert normalized_answer(text) == expected


@pytest.mark.parametrize(
    ("answers", "prediction", "expected"),
    [
        (["the Virgin Mary"], "Virgin Mary!", (1, 1)),
        (["Virgin Mary"], "Virgin Mary of Lourdes", (0, 2 / 3)),  # precision 2/4, recall 2/2
        (["mary mary quite"], "mary contrary mary mary", (0, 4 / 7)),  # two words in common: precision 2/4, recall 2/3
        (["1871", "in 1871"], "in 1871", (1, 1)),  # the better of two answers
        (["1871"], "1912", (0, 0)),
        (["1871"], "", (0, 0)),
        ([], "", (1, 1)),
        ([], "the", (1, 1)),  # nothing is left of it
        ([], "1871", (0, 0)),
        (["the", "cat"], "", (0, 0)),  # nothing is left of one answer: the other counts
        (["the"], "", (1, 1)),
    ],
)
def test_a_prediction_earns(answers: list[str], prediction: str, expected: tuple[float, float]) -> None:
    assert marks(ask("one", *answers), prediction) == pytest.approx(expected)


def test_a_score_is_the_mean_in_percent_and_is_separate_for_questions_without_answers() -> None:
    questions = [ask("a", "Virgin Mary"), ask("b", "1871"), ask("c")]
    found = scores_by_group(questions, {"a": "Virgin Mary of Lourdes", "b": "1871", "c": ""})
    assert found == pytest.approx({
        "exact": 200 / 3, "f1": 800 / 9, "total": 3,
        "HasAns_exact": 50, "HasAns_f1": 250 / 3, "HasAns_total": 2,
        "NoAns_exact": 100, "NoAns_f1": 100, "NoAns_total": 1,
    })  # fmt: skip


def test_a_question_without_a_prediction_counts_as_wrong() -> None:
    assert score([ask("a"), ask("b", "x")], {"b": "x"}) == {"exact": 50, "f1": 50, "total": 2}


def test_of_several_questions_with_one_id_the_last_counts_as_in_squad_2_0_s_script() -> None:
    questions = [ask("a", "by the river"), ask("a", "1802"), ask("b", "Tom"), ask("c"), ask("c", "x")]
    found = scores_by_group(questions, {"a": "1802", "b": "Tom", "c": "y"})
    assert (found["total"], found["HasAns_total"]) == (3, 3)
    assert found["exact"] == pytest.approx(200 / 3)
    assert "NoAns_total" not in found


def write(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def squad(*questions: dict[str, object]) -> dict[str, object]:
    return {"data": [{"title": "t", "paragraphs": [{"context": "the cat sat", "qas": list(questions)}]}]}


CAT = {"id": "a", "question": "who?", "answers": [{"text": "cat", "answer_start": 4}]}


def test_the_command_prints_scores_and_warns_of_missing_predictions(
    tmp_path: Path, capsys: Captured, printed: Printed
) -> None:
    nobody = {"id": "b", "question": "who?", "answers": [], "is_impossible": True}
    dev = write(tmp_path / "dev.json", squad(CAT, nobody))
    predictions = write(tmp_path / "p.json", {"a": "the cat", "c": "sat"})
    assert main(["finetune", "squad", "--dev", dev, "--score", predictions]) == 0
    shown = capsys.readouterr()
    assert "no prediction for 1" in shown.err
    assert "exact 50.00 %" in shown.out
    found = json.loads(printed("finetune", "squad", "--dev", dev, "--score", predictions, "--json"))
    assert (found["exact"], found["f1"], found["total"]) == (50, 50, 2)


def test_files_may_begin_with_a_byte_order_mark_and_repeated_ids_are_warned_of(
    tmp_path: Path, capsys: Captured
) -> None:
    dev, predictions = tmp_path / "dev.json", tmp_path / "p.json"
    dev.write_bytes(codecs.BOM_UTF8 + json.dumps(squad(CAT, CAT)).encode())
    predictions.write_bytes(codecs.BOM_UTF8 + json.dumps({"a": "cat"}).encode())
    assert main(["finetune", "squad", "--dev", str(dev), "--score", str(predictions)]) == 0
    shown = capsys.readouterr()
    assert "exact 100.00 %" in shown.out
    assert f"{dev}: 2 questions" in shown.err


@pytest.mark.parametrize("answer", [{"text": "cat", "answer_start": 3}, {"text": "cat"}])
def test_scores_don_t_need_the_position_of_an_answer(
    tmp_path: Path, printed: Printed, answer: dict[str, object]
) -> None:
    odd = [{**CAT, "answers": [answer]}, {**CAT, "id": "b", "is_impossible": True}]  # the official script scores both
    words = ["--dev", write(tmp_path / "dev.json", squad(*odd)), "--score"]
    found = json.loads(
        printed("finetune", "squad", *words, write(tmp_path / "p.json", {"a": "cat", "b": ""}), "--json")
    )
    assert (found["exact"], found["HasAns_total"]) == (50, 2)


@pytest.mark.parametrize(
    ("dev", "predictions", "expected"),
    [
        ('{"data": [', {}, "dev.json"),
        (squad({**CAT, "id": 3}), {}, "qas[0].id"),
        (squad(), {}, "no question"),
        (squad(CAT), {"a": None}, "p.json"),
    ],
)
def test_a_damaged_file_is_one_error(
    tmp_path: Path, printed: Printed, dev: object, predictions: object, expected: str
) -> None:
    words = ["--dev", write(tmp_path / "dev.json", dev), "--score", write(tmp_path / "p.json", predictions)]
    message = printed("finetune", "squad", *words, code=2)
    assert expected in message
    assert message.count("\n") == 1
