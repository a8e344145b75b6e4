"""Recipes: those that ship, changes to them, and faults told in one line before anything is loaded."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from paravt_cli.train import app
from paravt_infer.errors import SettingsError
from paravt_training.recipe import FOLDER, SftRecipe, load_recipe

NONE = "perception: 0, parallel: 0, sequential: 0, overview: 0, reasoning: 0, direct: 0"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*_sft.yaml")), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_valid(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem and load_recipe(path.stem) == recipe


def test_the_papers_numbers() -> None:
    recipe = load_recipe("qwen3vl_8b_sft")
    (phase,) = recipe.phases
    assert (phase.learning_rate, phase.warmup, phase.steps, phase.final) == (2e-5, 0.05, 1500, 0)
    assert (recipe.batch, recipe.weight_decay, recipe.clip, recipe.checkpoints.every) == (32, 0.01, 1.0, 100)
    assert recipe.precision == "bf16" and recipe.gradient_checkpointing
    assert recipe.data.kind == "parquet" and (recipe.data.fps, recipe.data.frames) == (1.0, 64)
    assert not any(phase.mix.tool_code for phase in load_recipe("mini_sft").phases)


def test_keys_are_changed_by_their_path() -> None:
    recipe = load_recipe("mini_sft", ["phases.0.steps=7", "data.seed=3", "held_out.mix.budgets=[4]", "out=here"])
    assert (recipe.phases[0].steps, recipe.data.seed, recipe.held_out.mix.budgets, recipe.out) == (7, 3, [4], "here")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("bath=3", "unknown key 'bath'; did you mean 'batch'?"),
        ("phases.0.rate=1", "unknown key 'phases.0.rate'; choose from name, steps, learning_rate"),
        ("data.noisy=1", "unknown key 'data.noisy'; did you mean 'noise'?"),
        ("phases.0.mix.window=1", "unknown key 'phases.0.mix.window'; choose from caption, reading"),
        ("model.mini.layer=1", "unknown key 'model.mini.layer'; did you mean 'layers'?"),
        ("data.kind=files", "recipe data.kind: must be 'world' or 'parquet', not 'files'"),
        ("data={}", "recipe data.kind: must be 'world' or 'parquet', but is missing"),
        ("precision=fp16", "recipe precision: Input must be 'auto', 'bf16' or 'fp32', not 'fp16'"),
        ("data.noise=-1", "recipe data.noise: must be at least 0, not -1"),
        ("batch=0", "recipe batch: Input must be at least 1, not 0"),
        ("phases.0.warmup=2", "recipe phases.0.warmup: Input must be less than 1, not 2"),
        ("phases=[]", "recipe phases: "),
        ("held_out.seed=0", "mini_sft.yaml: held_out.seed must differ from data.seed"),
        (f"phases.0.mix={{{NONE}}}", "mini_sft.yaml: phases, captions: all weights of mix are 0; one of caption"),
        ("phases.9.steps=1", "--set phases.9.steps=1: the recipe has no key phases.9.steps"),
        ("steps", "--set steps: must be key=value"),
        ("batch=[", "--set batch=[: '[' is not a YAML value"),
    ],
)  # fmt: skip
def test_a_fault_names_the_key_and_what_is_allowed(change: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_recipe("mini_sft", [change])
    line = str(caught.value)
    assert told.replace("Input ", "") in line.replace("Input ", "") and "\n" not in line


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    for text, told in (("a: [", "not a YAML file"), ("- 1", "must be a mapping"), ("name: x", "is missing")):
        (tmp_path / "r.yaml").write_text(text)
        with pytest.raises(SettingsError, match=told):
            load_recipe(tmp_path / "r.yaml")
    with pytest.raises(SettingsError, match="name a YAML file or one of mini_prior_sft, mini_sft, qwen3vl_8b_sft"):
        load_recipe("none")


def test_the_command_tells_a_fault_before_any_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "paravt_training.sft", None)  # importing it would fail
    result = CliRunner().invoke(app, ["sft", "--recipe", "mini_sft", "--set", "bath=3"])
    assert isinstance(result.exception, SettingsError)


def test_phases_follow_each_other() -> None:
    phases = "[{name: a, steps: 2, learning_rate: 1}, {name: b, steps: 3, learning_rate: 1, batch: 5}]"
    recipe: SftRecipe = load_recipe("mini_sft", [f"phases={phases}"])
    assert recipe.steps == 5
    assert [recipe.phase_at(step)[0].name for step in range(5)] == ["a"] * 2 + ["b"] * 3
    assert [recipe.phase_at(step)[1] for step in range(5)] == [0, 1, 0, 1, 2]
    assert [recipe.batch_at(step) for step in range(5)] == [recipe.batch] * 2 + [5] * 3
