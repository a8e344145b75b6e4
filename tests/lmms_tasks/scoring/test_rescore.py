"""Stored results under several scorers: the spread and the disagreements, in the record and on the screen."""

import json
import math
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from lmms_tasks.results import save_results
from lmms_tasks.scoring.rescore import Rescored, rescore
from lmms_tasks.scoring.scorers import get_scorer
from paravt_cli.rescore import rescore as command
from paravt_infer.errors import SettingsError
from tests.fixtures.judge_server import judge_server
from tests.fixtures.results import choice_result, open_result, span_result

ROWS = [
    choice_result("<answer>B</answer>", "B", id="plain"),
    choice_result("<answer>the answer is b</answer>", "B", id="lower"),
    choice_result("A man walks so the answer is C", "C", id="man"),
    choice_result(None, "B", id="broken"),
    span_result("[5.0, 10.0]", id="span"),
]

app = typer.Typer()
app.command()(command)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "140"})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    save_results(ROWS, tmp_path / "results" / "a.parquet")
    return tmp_path / "results"


def test_scorers_are_laid_side_by_side() -> None:
    charades, videomme = rescore(ROWS, [get_scorer(name) for name in ("paravt", "strict", "lmms-eval")]).tasks
    assert {name: summary.headline.value for name, summary in videomme.summaries.items()} == pytest.approx(
        {"paravt": 100, "strict": 100 / 3, "lmms-eval": 100 / 3}
    )
    assert videomme.spread == pytest.approx(200 / 3)
    assert [(one.id, one.gold, one.answer, one.scores) for one in videomme.disagreements] == [
        ("lower", "B", "the answer is b", {"paravt": 1, "strict": 0, "lmms-eval": 0}),
        ("man", "C", "A man walks so the answer is C", {"paravt": 1, "strict": 0, "lmms-eval": 0}),
    ]
    assert videomme.summaries["paravt"].failed == 1
    assert charades.disagreements[0].scores == {"paravt": 1, "strict": 0, "lmms-eval": 0}


def test_scores_that_differ_in_rounding_alone_agree() -> None:
    made = span_result("It happens in 5.1 - 9.7", task="paravt_charades_sta")
    [task] = rescore([made], [get_scorer("paravt"), get_scorer("lmms-eval")]).tasks
    assert task.disagreements == [] and task.spread == pytest.approx(0)


def test_a_scorer_without_a_rule_for_a_task_is_left_out_of_it_and_says_so() -> None:
    rows = [choice_result("B", "B", task="sample_world"), choice_result("B", "B")]
    world, videomme = reversed(rescore(rows, [get_scorer("paravt"), get_scorer("lmms-eval")]).tasks)
    assert [*world.summaries] == ["paravt"] and world.spread is None
    assert "no function for task sample_world" in world.faults["lmms-eval"][0]
    assert [*videomme.summaries] == ["paravt", "lmms-eval"] and videomme.faults == {}
    with pytest.raises(SettingsError, match="no function for task sample_world"):
        rescore(rows[:1], [get_scorer("lmms-eval")])


def test_nothing_to_score_is_one_line() -> None:
    with pytest.raises(SettingsError, match="results: empty"):
        rescore([], [get_scorer("paravt")])


def test_what_a_judge_did_not_score_is_counted_and_never_a_0() -> None:
    rows = [open_result(said, "canine", id=said) for said in ("a dog", "a cat", "a wolf")] + [
        open_result(None, "canine")
    ]

    def says(prompt: str) -> str | int:
        return 400 if "a wolf" in prompt else f"VERDICT: {'RIGHT' if 'a dog' in prompt else 'WRONG'}"

    seen: list[None] = []
    with judge_server(says) as server:
        judge = get_scorer("judge", server=server.url)
        found = rescore(rows, [get_scorer("paravt"), judge], done=lambda: seen.append(None))
    [task] = found.tasks
    summary = task.summaries["judge"]
    assert (summary.headline.value, summary.unscored, summary.failed) == (50, 1, 1)
    assert len(task.faults["judge"]) == 1 and "question a wolf: " in task.faults["judge"][0]
    assert [(one.id, one.scores) for one in task.disagreements] == [("a dog", {"paravt": 0, "judge": 1})]
    assert found.scorers["judge"]["model"] == "small-judge" and "VERDICT" in found.scorers["judge"]["prompt"]
    assert len(seen) == 8


def test_a_judge_that_never_replied_leaves_nothing_to_show() -> None:
    with judge_server(lambda prompt: 400) as server, pytest.raises(SettingsError, match=r"question q: .* answered 400"):
        rescore([open_result("a dog", "canine")], [get_scorer("judge", server=server.url)])


def test_the_command_prints_the_spread_and_writes_everything(results: Path, tmp_path: Path) -> None:
    done = run(results, "--out", tmp_path / "out" / "scores.json")
    assert done.exit_code == 0
    assert "paravt_videomme" in done.stdout and "spread: 66.7 points" in done.stdout
    assert "scorers disagree on 2" in done.stdout and "A man walks so the answer is C" in done.stdout
    assert "lmms-eval: lmms-eval 0.7.3" in done.stdout
    saved = Rescored.model_validate_json((tmp_path / "out" / "scores.json").read_text())
    assert [task.task for task in saved.tasks] == ["paravt_charades_sta", "paravt_videomme"]
    assert [*saved.scorers] == ["paravt", "strict", "lmms-eval"]


def test_the_command_shows_twenty_disagreements_and_tells_how_many_there_are(tmp_path: Path) -> None:
    said = "word " * 100 + "[bold]B[/bold]"
    save_results(
        [choice_result(said, "B", id=f"question-{number:02d}") for number in range(25)], tmp_path / "many.parquet"
    )
    done = run(tmp_path / "many.parquet", "--scorer", "paravt", "--scorer", "strict", "--out", tmp_path / "all.json")
    assert "scorers disagree on 25, 20 of them shown" in done.stdout
    assert "question-19" in done.stdout and "question-20" not in done.stdout
    assert "word ... [bold]B" in done.stdout and "word " * 20 not in done.stdout
    assert len(json.loads((tmp_path / "all.json").read_text())["tasks"][0]["disagreements"]) == 25


def test_the_command_asks_a_judge_and_says_which(tmp_path: Path) -> None:
    save_results([open_result("a dog", "canine")], tmp_path / "one.parquet")
    with judge_server(lambda prompt: "VERDICT: RIGHT") as server:
        done = run(tmp_path / "one.parquet", "--scorer", "judge", "--scorer", "paravt", "--server", server.url)
    assert f"judge: server {server.url}, model small-judge, prompt_sha256 " in done.stdout
    assert "spread: 100.0 points" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--scorer", "exact"], "unknown scorer 'exact'; choose from paravt"),
        (["--scorer", "judge"], "add its endpoint: --server"),
        (["--server", "http://127.0.0.1:9"], "--server names a judge, which none of the scorers asks"),
        (["--out", "/proc/no/such.json"], "/proc/no/such.json: cannot write"),
    ],
)
def test_a_mistake_is_one_line(results: Path, arguments: list[str], fault: str) -> None:
    error = run(results, *arguments).exception
    assert isinstance(error, SettingsError) and fault in str(error) and "\n" not in str(error)


def test_results_that_are_not_there_are_one_line(tmp_path: Path) -> None:
    error = run(tmp_path / "none").exception
    assert isinstance(error, SettingsError) and "no results found" in str(error)


def test_failed_rows_alone_have_no_score(tmp_path: Path) -> None:
    save_results([choice_result(None, "B")], tmp_path / "failed.parquet")
    done = run(tmp_path / "failed.parquet", "--out", tmp_path / "all.json")
    assert done.exit_code == 0
    saved = Rescored.model_validate_json((tmp_path / "all.json").read_text())
    assert math.isnan(saved.tasks[0].summaries["paravt"].headline.value)
    assert saved.tasks[0].spread is None and "spread" not in done.stdout
