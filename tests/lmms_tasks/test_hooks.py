"""What lmms-eval is told of a document and makes of a response: the same numbers as this project's own."""

import json
import math
from typing import Any

import pytest

from lmms_tasks import hooks
from lmms_tasks.hooks import FAILED, response_text
from lmms_tasks.results import EvalResult
from lmms_tasks.scoring.scorers import get_scorer
from lmms_tasks.scoring.summary import summarise
from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.tasks.base import ROW_COLUMN, TASK_COLUMN
from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_training.world.benchmark_fixture import benchmark_rows

UPSTREAM = "[LMMS_EVAL_REQUEST_FAILED after 5 retries] Connection error. Details: D"
COLOURS = {"A": "red", "B": "green", "C": "blue", "D": "none of them"}


def videomme(
    number: int = 1, *, answer: str = "B", duration: str = "short", domain: str = "Knowledge"
) -> dict[str, Any]:
    return {
        "question_id": f"001-{number}",
        "videoID": "x",
        "question": "Which colour?",
        "options": [f"{letter}. {text}" for letter, text in COLOURS.items()],
        "answer": answer,
        "duration": duration,
        "domain": domain,
    }


def mlvu(number: int, task_type: str) -> dict[str, Any]:
    texts = list(COLOURS.values())
    doc = {"video_name": "x.mp4", "question": "Which?", "candidates": texts, "answer": "B", "task_type": task_type}
    return doc | {ROW_COLUMN: number}


def charades(number: int) -> dict[str, Any]:
    return {"video": "x.mp4", "caption": "a door opens", "timestamp": [10.0, 20.0], ROW_COLUMN: number}


def mmvu(number: int, answer: str, *, choice: bool) -> dict[str, Any]:
    kind = "multiple-choice" if choice else "open-ended"
    choices = COLOURS | {"E": "grey"} if choice else dict.fromkeys("ABCDE")
    doc = {"id": f"validation_{number}", "video_path": "x.mp4", "question": "Which?", "choices": choices}
    return doc | {"question_type": kind, "answer": answer}


def figures(task: str, *answered: tuple[dict[str, Any], str]) -> dict[str, float]:
    """What lmms-eval would show for these documents and responses."""
    values: dict[str, list[dict[str, Any]]] = {}
    for doc, response in answered:
        counted = hooks.process_results(doc | {TASK_COLUMN: task}, [response])
        for name, value in json.loads(json.dumps(counted)).items():
            values.setdefault(name, []).append(value)
    return {name: BENCHMARKS[task].aggregate(listed) for name, listed in values.items()}


@pytest.mark.parametrize(
    ("response", "accuracy"),
    [
        ("B", 100),
        ("b", 100),
        ("green", 100),
        ("(B) green", 100),
        ("<think>red? no</think><answer>B</answer>", 100),
        ("<think>B</think><answer>A</answer>", 0),
        ("<answer>B\nthe ball is green, not red</answer>", 100),
        ("The ball is red at first.\nB", 100),
        ("The answer is B.\n\nI hope that this helps.", 100),
        ("The correct answer is option (B), not (A).", 100),
        ("A man is walking so the answer is C", 0),
        ("red", 0),
    ],
)
def test_a_response_is_read_as_the_engine_reads_one(response: str, accuracy: float) -> None:
    found = figures("paravt_videomme", (videomme(), response))
    assert (found["accuracy"], found["failed"], found["no_answer"]) == (accuracy, 0, 0)


@pytest.mark.parametrize("response", ["", "I can't tell", "<answer></answer>"])
def test_no_answer_is_a_wrong_one_and_counted(response: str) -> None:
    found = figures("paravt_videomme", (videomme(1), "B"), (videomme(2), response))
    assert (found["accuracy"], found["failed"], found["no_answer"]) == (50, 0, 1)


@pytest.mark.parametrize("broken", [f"{FAILED} x.mp4: no such file; option B", UPSTREAM])
def test_a_failure_is_counted_and_never_scored(broken: str) -> None:
    found = figures("paravt_videomme", (videomme(1), "B"), (videomme(2, answer="D"), broken))
    assert (found["accuracy"], found["failed"], found["no_answer"]) == (100, 1, 0)


def test_where_all_failed_there_is_no_accuracy() -> None:
    found = figures("paravt_videomme", (videomme(), f"{FAILED} no such file"))
    assert math.isnan(found["accuracy"]) and found["failed"] == 1


def test_videomme_is_broken_down_by_duration_and_domain() -> None:
    film = "Film & Television"
    found = figures(
        "paravt_videomme",
        (videomme(1), "B"),
        (videomme(2), "A"),
        (videomme(3, duration="long", domain=film), "B"),
    )
    assert found["accuracy"] == pytest.approx(200 / 3)
    assert (found["accuracy_short"], found["accuracy_long"]) == (50, 100)
    assert (found["accuracy_Knowledge"], found["accuracy_Film_Television"]) == (50, 100)
    assert "accuracy_medium" not in found  # none of them, and no crash


def test_mlvu_is_the_mean_over_the_task_types_that_are_present() -> None:
    found = figures("paravt_mlvu", (mlvu(0, "ego"), "B"), (mlvu(1, "ego"), "B"), (mlvu(2, "count"), "A"))
    assert (found["macro"], found["accuracy"]) == (50, pytest.approx(200 / 3))
    assert (found["accuracy_ego"], found["accuracy_count"]) == (100, 0)
    assert figures("paravt_mlvu", (mlvu(0, "ego"), "B"))["macro"] == 100


def test_an_unknown_task_type_counts_like_any_other() -> None:
    assert figures("paravt_mlvu", (mlvu(0, "ego"), "B"), (mlvu(1, "sports"), "A"))["macro"] == 50


def test_mmvus_kinds_of_question_are_apart() -> None:
    found = figures(
        "paravt_mmvu",
        (mmvu(0, "E", choice=True), "grey"),
        (mmvu(1, "3 m/s", choice=False), "30 m/s"),
        (mmvu(2, "BFS", choice=False), "not depth-first search but BFS"),
        (mmvu(3, "BFS", choice=False), ""),
    )
    assert found["accuracy"] == 50
    assert (found["accuracy_multiple_choice"], found["accuracy_open_ended"]) == (100, pytest.approx(100 / 3))


def test_charades_is_over_every_row_that_did_not_fail() -> None:
    found = figures(
        "paravt_charades_sta",
        (charades(0), "[10.0, 20.0]"),
        (charades(1), "[10.0, 15.0]"),  # the same row again, half of it
        (charades(2), "between 10 and 20 seconds"),
        (charades(3), "no idea"),
        (charades(4), f"{FAILED} no such file"),
    )
    assert found["miou"] == pytest.approx(100 * (1 + 0.5 + 1 + 0) / 4)
    assert (found["r@0.3"], found["r@0.5"], found["r@0.7"], found["failed"]) == (75, 75, 50, 1)


def test_a_span_before_the_last_line_is_read_where_that_names_none() -> None:
    said = "The event happens in 10.0 - 20.0 seconds.\nI am sure of it."
    assert figures("paravt_charades_sta", (charades(0), said))["miou"] == 100


def test_longvideobench_is_broken_down_by_duration_group() -> None:
    docs = [doc for doc in benchmark_rows("longvideobench") if doc["duration_group"] != 15]
    found = figures("paravt_longvideobench", *((doc, "ABCDE"[doc["correct_choice"]]) for doc in docs))
    assert {name for name in found if name.startswith("accuracy_")} == {"accuracy_60", "accuracy_600"}
    assert set(found.values()) == {100, 0}


@pytest.mark.parametrize("task", BENCHMARKS)
def test_the_gold_is_right_and_the_figures_are_those_of_the_summary(task: str) -> None:
    benchmark = BENCHMARKS[task]
    docs = [doc | {TASK_COLUMN: task} for doc in benchmark_rows(benchmark.name)]
    answered = [(doc, hooks.doc_to_target(doc) if number % 3 else "no idea") for number, doc in enumerate(docs)]
    found = figures(task, *answered)
    counted = [hooks.process_results(doc, [response])["failed"]["row"] for doc, response in answered]
    summary = summarise([EvalResult.model_validate(row) for row in counted], get_scorer("paravt"))
    assert {name: found[name] for name in summary.metrics} == summary.metrics
    assert summary.headline.name == next(iter(benchmark.metrics)) and list(summary.metrics) == list(benchmark.metrics)
    assert 0 < summary.headline.value < 100
    for group in (group for values in summary.groups.values() for group in values.items()):
        value, figure = group
        assert found[f"accuracy_{value.replace(' ', '_')}"] == figure.score


@pytest.mark.parametrize("task", BENCHMARKS)
def test_a_prompt_is_the_question_alone(task: str) -> None:
    for doc in benchmark_rows(BENCHMARKS[task].name):
        question = BENCHMARKS[task].item(doc).question
        doc = doc | {TASK_COLUMN: task}
        text = hooks.doc_to_text(doc)
        form = ["Give the time span as [start, end] in seconds."] if question.kind == "grounding" else []
        assert text.splitlines() == [question.text, *(f"{x}. {y}" for x, y in question.options.items()), *form]
        assert hooks.doc_to_visual(doc) == [question.video]


@pytest.mark.parametrize("text", ["B", "green", "B\nit is green", "first line\n\nB. red", "not A,\nbut\nB"])
def test_what_the_adapter_returns_is_read_back_as_it_was_answered(text: str) -> None:
    doc = videomme()
    question = BENCHMARKS["paravt_videomme"].item(doc).question
    said = response_text(Rollout(question=question, status="answered", answer="B", answer_text=text))
    counted = hooks.process_results(doc | {TASK_COLUMN: "paravt_videomme"}, [said])
    assert counted["accuracy"]["row"]["rollout"]["answer_text"] == text


def test_an_episode_without_an_answer_returns_nothing_and_a_failed_one_its_reason() -> None:
    question = Question(video="x.mp4", text="Which?")
    assert response_text(Rollout(question=question, status="no_answer")) == ""
    assert response_text(Rollout(question=question, status="failed", error="x.mp4: gone")) == f"{FAILED} x.mp4: gone"


@pytest.mark.parametrize(
    ("doc", "complaint"),
    [
        (videomme(), "a document has no column paravt_task; give its task's YAML file a process_docs line"),
        (
            videomme() | {TASK_COLUMN: "paravt_videome"},
            "unknown task 'paravt_videome'; did you mean 'paravt_videomme'?",
        ),
    ],
)
def test_a_document_must_name_a_task_that_exists(doc: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError) as error:
        hooks.doc_to_text(doc)
    assert str(error.value) == complaint
