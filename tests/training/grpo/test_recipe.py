"""GRPO recipes: those that ship say what the paper says, and faults are told in one line before anything is loaded."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from paravt_cli.train import app
from paravt_infer.errors import SettingsError
from paravt_training.grpo.recipe import GrpoRecipe, load_grpo_recipe
from paravt_training.recipe import FOLDER, load_recipe

SHIPPED = sorted(path.stem for path in FOLDER.glob("*grpo*.yaml"))
ABLATIONS: dict[str, dict[str, Any]] = {
    "paragrpo": {},
    "vanilla_grpo": {
        "settings.think_prefix": "off",
        "gating.enabled": False,
        "rewards.anchoring": False,
        "rewards.answer_suffix": False,
        "rewards.tool": False,
    },
    "anchoring_grpo": {"gating.enabled": False},
    "gating_grpo": {"settings.think_prefix": "off", "rewards.anchoring": False, "rewards.answer_suffix": False},
    "no_rtool_grpo": {"rewards.tool": False},
    "no_gamma_grpo": {"rewards.gamma": 0.0},
}
"""The rows of Table 2, B, and in what each differs from the full recipe."""


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {key: one for name, inner in value.items() for key, one in flat(inner, f"{path}.{name}".strip(".")).items()}


# Those that ship


@pytest.mark.parametrize("name", SHIPPED)
def test_every_recipe_that_ships_is_valid(name: str) -> None:
    recipe = load_grpo_recipe(name)
    assert (recipe.name, recipe.out) == (name, f"runs/{name}")
    assert load_grpo_recipe(FOLDER / f"{name}.yaml") == recipe


def test_there_is_one_for_each_row_of_table_2_b_large_and_small() -> None:
    assert set(SHIPPED) == {f"{row}_8b" for row in ABLATIONS} | {f"mini_{row}" for row in ABLATIONS}


@pytest.mark.parametrize("row", ABLATIONS)
@pytest.mark.parametrize("form", ["{}_8b", "mini_{}"])
def test_an_ablation_differs_in_its_component_alone(form: str, row: str) -> None:
    full, own = (flat(load_grpo_recipe(form.format(name)).model_dump()) for name in ("paragrpo", row))
    assert {key: own[key] for key in own if own[key] != full[key] and key not in ("name", "out")} == ABLATIONS[row]


def test_the_papers_numbers() -> None:
    """Table 4, and what the appendix says beside it."""
    recipe = load_grpo_recipe("paragrpo_8b")
    assert (recipe.learning_rate, recipe.weight_decay, recipe.clip) == (2e-6, 0.01, 1.0)
    assert (recipe.temperature, recipe.group, recipe.prompts) == (0.7, 8, 7)
    objective, rewards = recipe.objective, recipe.rewards
    assert (objective.kl, objective.clip, objective.reward_scale, objective.reward_bias) == (0.01, 0.2, 10.0, -0.2)
    assert (objective.normalise, objective.decoupled, objective.behaviour_cap) == ("group", True, 5.0)
    assert (rewards.lambda_fmt, rewards.lambda_anchor) == (1.0, 0.5)
    assert (rewards.alpha, rewards.beta, rewards.gamma) == (0.4, 0.3, 0.3)
    assert (rewards.necessity, rewards.contrastive, rewards.format_steps) == (None, 0.0, 0)
    # From step 500 of the cold start; a call that has gone back to `<tool_code>` is paid no reward (section 1).
    assert recipe.model.start.endswith("/step-500") and recipe.settings["tool_code"] == "refuse"
    assert recipe.gating.budgets == (4, 8, 16, 32, 64)
    assert (recipe.gpus.train, recipe.gpus.rollout, recipe.rollouts.staleness) == (7, 1, 2)
    assert (recipe.checkpoints.every, recipe.precision, recipe.gradient_checkpointing) == (5, "bf16", True)
    settings = recipe.episode_settings(frames=8, seed=3)
    assert (settings.think_prefix, settings.max_new_tokens, settings.summary_tokens) == ("every", 2048, 512)
    assert (settings.max_pixels, settings.fps, settings.window_frames, settings.max_tool_turns) == (50176, 1.0, 16, 3)


def test_an_episode_is_sampled_as_the_learner_computes() -> None:
    """Nothing is truncated, and each log-probability is recorded."""
    settings = load_grpo_recipe("mini_paragrpo").episode_settings(frames=16, seed=9)
    assert (settings.temperature, settings.top_p, settings.top_k, settings.turn_regex) == (0.7, 1.0, -1, ())
    assert settings.logprobs and (settings.frames, settings.seed) == (16, 9)


def test_the_mini_recipes_run_on_a_cpu_in_one_process() -> None:
    recipe = load_grpo_recipe("mini_paragrpo")
    assert (recipe.rollouts.backend, recipe.rollouts.staleness, recipe.data.kind) == ("transformers", 0, "world")
    assert recipe.model.start.endswith("paravt_infer/checkpoint") and recipe.held_out.every == 20


# Faults


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("grop=3", "unknown key 'grop'; did you mean 'group'?"),
        ("rewards.gama=0", "unknown key 'rewards.gama'; did you mean 'gamma'?"),
        ("objective.kll=0", "unknown key 'objective.kll'; did you mean 'kl'?"),
        ("rollouts.backend=vllm", "recipe rollouts.backend: must be 'sglang' or 'transformers', not 'vllm'"),
        ("group=1", "recipe group: must be at least 2, not 1"),
        ("temperature=0", "recipe temperature: must be greater than 0, not 0"),
        ("gating.budgets=[]", "recipe gating.budgets: "),
        ("model.start=mini", "model.start must be a checkpoint: reinforcement learning begins from a cold start"),
        ("held_out.seed=0", "held_out.seed must differ from data.seed, or nothing is held out"),
        ("data={kind: parquet, files: [a]}", "held_out.every must be 0 if data.kind is parquet"),
        ("settings.framez=3", "recipe settings: unknown setting 'framez'; did you mean 'frames'?"),
        ("settings.summary_tokens=0", "recipe settings: setting summary_tokens: must be at least 1, not 0"),
        ("settings.top_p=0.9", "recipe settings: top_p is set by the run itself; leave it out"),
        ("settings.temperature=1", "recipe settings: temperature is set by the run itself; leave it out"),
        ("settings.turn_regex=[a]", "recipe settings: turn_regex is set by the run itself; leave it out"),
        ("rewards.accuracy=judge", "recipe rewards: accuracy is judge; set judge.server to the URL of a chat endpoint"),
    ],
)  # fmt: skip
def test_a_fault_names_the_key_and_what_is_allowed(change: str, told: str) -> None:
    changes = [change] if "kind: parquet" not in change else ["data=null", change]
    with pytest.raises(SettingsError) as caught:
        load_grpo_recipe("mini_paragrpo", changes)
    line = str(caught.value)
    assert told in line and "mini_paragrpo.yaml" in line and "\n" not in line


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["prompts=6"], "6 x 8 = 48 rollouts do not divide by 7 training processes; with group 8, prompts must be 7"),
        (["prompts=10"], "10 x 8 = 80 rollouts do not divide by 7 training processes; with group 8, prompts must be 7"
                         " or 14"),
        (["gpus.train=6"], "7 x 8 = 56 rollouts do not divide by 6 training processes; with group 8, prompts must be 6"
                           " or 9"),
        (["group=3", "prompts=3"], "3 x 3 = 9 rollouts do not divide by 7"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_divide_are_refused_with_those_that_would(changes: list[str], told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_grpo_recipe("paragrpo_8b", changes)
    assert told in str(caught.value)


@pytest.mark.parametrize("changes", [["gpus.train=4"], ["prompts=14"], ["gpus.train=8"]])
def test_sizes_that_divide_are_taken(changes: list[str]) -> None:
    assert isinstance(load_grpo_recipe("paragrpo_8b", changes), GrpoRecipe)


def test_a_recipe_of_the_other_kind_is_no_recipe_of_this_one() -> None:
    with pytest.raises(SettingsError, match=r"mini_sft\.yaml: recipe steps: is missing"):
        load_grpo_recipe("mini_sft")
    with pytest.raises(SettingsError, match=f"none: no such recipe; name a YAML file or one of {', '.join(SHIPPED)}"):
        load_grpo_recipe("none")


def test_the_command_tells_a_fault_before_any_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "paravt_training.grpo.trainer", None)  # importing it would fail
    result = CliRunner().invoke(app, ["grpo", "--recipe", "paragrpo_8b", "--set", "prompts=6"])
    assert isinstance(result.exception, SettingsError) and "prompts must be 7" in str(result.exception)


# Recipes that change others


def written(folder: Path, **files: Any) -> Path:
    for name, values in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values))
    return folder


def test_keys_are_laid_over_the_bases_mapping_by_mapping(tmp_path: Path) -> None:
    written(
        tmp_path,
        middle={"base": "mini_paragrpo", "name": "m", "rewards": {"gamma": 0.1, "alpha": 0.2}, "steps": 5},
        top={"base": "middle.yaml", "name": "t", "rewards": {"gamma": 0.0}, "gating": {"budgets": [4]}},
    )
    below, top = load_grpo_recipe("mini_paragrpo"), load_grpo_recipe(tmp_path / "top.yaml", ["rewards.beta=1"])
    rewards = below.rewards.model_copy(update={"gamma": 0.0, "alpha": 0.2, "beta": 1.0})
    gating = below.gating.model_copy(update={"budgets": (4,)})
    assert top == below.model_copy(update={"name": "t", "steps": 5, "rewards": rewards, "gating": gating})


def test_supervised_recipes_can_change_others_too(tmp_path: Path) -> None:
    written(tmp_path, more={"base": "mini_sft", "name": "more", "batch": 4, "model": {"mini": {"layers": 2}}})
    recipe = load_recipe(tmp_path / "more.yaml")
    assert (recipe.name, recipe.batch, recipe.model.mini.layers) == ("more", 4, 2)
    assert recipe.phases == load_recipe("mini_sft").phases


@pytest.mark.parametrize(
    ("base", "told"),
    [
        ("nowhere", "top.yaml: recipe base: nowhere: no such recipe; name a YAML file or one of anchoring_grpo_8b"),
        ("other.yaml", "other.yaml: recipe base: top.yaml is itself based on this recipe; choose another"),
        ("top.yaml", "top.yaml: recipe base: top.yaml is itself based on this recipe; choose another"),
        ("list.yaml", "list.yaml: not a recipe; it must be a mapping of keys to values"),
    ],
)
def test_a_base_that_cannot_be_is_one_line(tmp_path: Path, base: str, told: str) -> None:
    written(tmp_path, top={"base": base, "name": "t"}, other={"base": "top.yaml"}, list=[1])
    with pytest.raises(SettingsError) as caught:
        load_grpo_recipe(tmp_path / "top.yaml")
    assert told in str(caught.value) and "\n" not in str(caught.value)
