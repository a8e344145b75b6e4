"""Files written by earlier versions still load, and what they depend on has not changed.

`fixtures/saved` was written by version 0.1.0 as of November 2026, before its modules were regrouped and renamed: a
journal and results of the bundled checkpoint about a sample video, an SFT run stopped after two of three steps, and a
GRPO run of two steps.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lmms_tasks.results import load_results
from paravt_infer import bundled
from paravt_infer.journal import Journal, rollout_key
from paravt_infer.protocols import PROTOCOLS, get_protocol
from paravt_infer.rollout_files import load_rollouts
from paravt_training.data.manifest import load_manifest
from paravt_training.grpo.recipe import load_grpo_recipe
from paravt_training.plan.sizes import load_any_recipe
from paravt_training.recipe import load_recipe

SAVED = Path(__file__).parent / "fixtures/saved"
ANSWERS = {"choice": "C", "span": "[10.0, 15.0]", "open": "red circle", "failed": None}


def read_json(name: str) -> Any:
    return json.loads((SAVED / name).read_text())


def test_a_journal_is_read_and_its_episodes_are_found_by_the_same_keys(tmp_path: Path) -> None:
    journal = Journal(Path(shutil.copy(SAVED / "journal.jsonl", tmp_path)))
    found = journal.load_finished()
    journal.close()
    keys = read_json("journal_keys.json")
    assert {key: rollout.question.id for key, rollout in found.items()} == {
        keys[name]: name for name in ("choice", "span", "open")
    }


@pytest.mark.parametrize("name", ["journal.jsonl", "rollouts.parquet"])
def test_rollouts_are_read(name: str) -> None:
    rollouts = list(load_rollouts(SAVED / name))
    assert {rollout.question.id: rollout.answer for rollout in rollouts} == ANSWERS
    assert {rollout.question.id: rollout_key(rollout) for rollout in rollouts} == read_json("journal_keys.json")


def test_a_single_rollout_is_read() -> None:
    (rollout,) = load_rollouts(SAVED / "rollout.json")
    assert rollout.answer == "C" and len(rollout.supporting_evidence) == 2


def test_results_of_an_evaluation_are_read_and_scored_as_before() -> None:
    from lmms_tasks.evaluate import summaries_by_task

    rows = list(load_results(SAVED / "results"))
    assert {row.item.question.id: row.rollout.answer for row in rows} == ANSWERS
    (summary,) = summaries_by_task(rows).values()
    assert summary.model_dump(mode="json") == read_json("results/results.json")["summaries"]["paravt_mmvu"]


def test_every_recipe_that_ships_says_what_it_said() -> None:
    for name, values in read_json("recipes.json").items():
        recipe = load_manifest(name) if name == "paravt_sft_mix" else load_any_recipe(name)
        now = recipe.model_dump(mode="json")
        if now.get("model", {}).get("start") == str(bundled.checkpoint_path()):
            now["model"]["start"] = "bundled"
        assert now == values, name


def test_no_protocol_says_another_word() -> None:
    assert {name: get_protocol(name).checksum() for name in PROTOCOLS} == read_json("protocols.json")


def test_every_flag_of_every_command_is_still_there() -> None:
    from typer.main import get_command

    from paravt_cli.main import app

    def commands(command: Any, path: str) -> dict[str, Any]:
        inner = getattr(command, "commands", None)
        if inner is None:
            return {path: command}
        return {name: one for key, below in inner.items() for name, one in commands(below, f"{path} {key}").items()}

    now = commands(get_command(app), "paravt")
    for name, parameters in read_json("flags.json").items():
        flags = {flag for parameter in now[name].params for flag in (*parameter.opts, *parameter.secondary_opts)}
        before = {flag for parameter in parameters.values() for flag in parameter["flags"] if flag.startswith("-")}
        assert before <= flags, name


def test_a_run_of_fine_tuning_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paravt_training.sft import train

    for name in ("sft", "sft.yaml"):
        copy = shutil.copytree if (SAVED / name).is_dir() else shutil.copy
        copy(SAVED / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert train(load_recipe("sft.yaml"), resume=True) == Path("sft/export")
    lines = [json.loads(line) for line in (tmp_path / "sft/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[2].keys() == lines[1].keys()
    assert lines[2]["loss"] == pytest.approx(5.912730, abs=1e-4)  # as the version that wrote the checkpoint went on


def test_metrics_and_rollouts_of_a_grpo_run_are_read(tmp_path: Path) -> None:
    from paravt_training.report.runs import read_runs

    (run,) = read_runs([SAVED / "grpo"])
    assert run.name == "saved_grpo" and run.has("held_out/accuracy") and run.has("f_tau")
    recipe = load_grpo_recipe(SAVED / "grpo.yaml")
    assert run.recipe == json.loads(json.dumps(recipe.model_dump()))
    assert len(list(load_rollouts(SAVED / "grpo/rollouts/step-000001.jsonl"))) == 4


def test_a_grpo_run_of_today_writes_the_same_metrics(tmp_path: Path) -> None:
    from paravt_training.grpo.trainer import train

    changes = ["steps=1", f"out={tmp_path}", "model.start=bundled"]
    train(load_grpo_recipe(SAVED / "grpo.yaml", changes))
    *_, before = (SAVED / "grpo/metrics.jsonl").read_text().splitlines()
    *_, now = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(now).keys() == json.loads(before).keys()
