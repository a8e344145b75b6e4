"""Plans: exact parameter counts, memory and time worked by hand, and what is said of a run that does not fit."""

import json
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from transformers import Qwen3VLForConditionalGeneration
from typer.testing import CliRunner

from paravt_cli.train import plan
from paravt_infer.errors import SettingsError
from paravt_infer.model import load_pretrained
from paravt_infer.settings import Settings
from paravt_training.grpo.recipe import GrpoRecipe
from paravt_training.model.attention import use_packed_attention
from paravt_training.model.packing import Learner, PackedRow
from paravt_training.model.random_checkpoint import build_mini
from paravt_training.plan.estimate import (
    GPUS,
    Estimate,
    make_plan,
    rollout_memory,
    step_seconds,
    step_tokens,
    training_memory,
)
from paravt_training.plan.sizes import (
    ModelSizes,
    RolloutSizes,
    RunSizes,
    load_any_recipe,
    load_config,
    published,
    run_sizes,
    sample_tokens,
)
from paravt_training.recipe import MiniShape, load_recipe

TOY = ModelSizes(
    name="toy",
    parameters={"vision tower": 1000, "mergers": 100, "text layers": 4000, "embeddings": 500, "head": 500},
    layers=4,
    hidden=10,
    intermediate=20,
    query_size=10,
    key_size=5,
    vocabulary=50,
    vision_layers=2,
    vision_hidden=8,
    vision_intermediate=16,
    patches=4,
    token_side=32,
)
SUPERVISED = RunSizes(
    model=TOY,
    gpus=2,
    row_tokens=100,
    gradient_checkpointing=False,
    bf16=True,
    samples=2,
    frame_tokens=30,
    budgets=(8,),
)
REINFORCED = replace(
    SUPERVISED,
    budgets=(4, 12),
    samples=8,
    sampling=RolloutSizes(
        gpus=1,
        concurrency=4,
        reference=True,
        sub_agents=True,
        settings=Settings.make(max_new_tokens=100, summary_tokens=40, window_frames=2),
    ),
)


def values(lines: list[Estimate]) -> dict[str, float]:
    return {line.name: line.value for line in lines}


def grpo(**changes: Any) -> GrpoRecipe:
    """The paper's run (Table 4) of Qwen3-VL-8B."""
    own = {"name": "para", "out": "runs/para", "steps": 9, "model": {"start": "Qwen/Qwen3-VL-8B-Instruct"}}
    own |= {"data": {"kind": "parquet", "files": ["*.parquet"]}, "gradient_checkpointing": True}
    return GrpoRecipe.model_validate(own | changes)


@pytest.mark.parametrize(
    ("size", "exact", "nominal"),
    [("2B", 2_127_532_032, 2.13e9), ("4B", 4_437_815_808, 4.44e9), ("8B", 8_767_123_696, 8.77e9)],
)
def test_published_models_have_the_parameters_they_are_named_for(size: str, exact: int, nominal: float) -> None:
    model = ModelSizes.from_config(published(size), size)
    assert model.total == exact == pytest.approx(nominal, rel=0.01)
    assert (model.parameters["head"] == 0) == (size != "8B")  # the smaller ones' embeddings serve as one


def test_the_small_models_counts_are_those_of_the_one_that_is_built(tmp_path: Path) -> None:
    shape = MiniShape(layers=3, hidden=48, heads=2, kv_heads=1, vision_layers=1, vision_hidden=32, vision_heads=1)
    built = load_pretrained(str(build_mini(tmp_path, shape)), "AutoModelForImageTextToText")
    counted = ModelSizes.from_config(load_config("mini", shape, 64), "mini")
    assert counted.total == sum(parameter.numel() for parameter in built.parameters())
    tower = sum(p.numel() for name, p in built.model.visual.named_parameters() if "merger" not in name)
    layers = sum(p.numel() for p in built.model.language_model.parameters()) - counted.parameters["embeddings"]
    assert (counted.parameters["vision tower"], counted.parameters["text layers"]) == (tower, layers)
    assert ModelSizes.from_config(load_config(str(tmp_path), shape, 64), "mini") == counted


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(SettingsError, match="a model of type qwen2; plans need a dense Qwen3-VL model"):
        load_config(str(tmp_path), MiniShape(), 64)


@pytest.fixture(scope="module")
def mini() -> Any:
    return load_config("mini", MiniShape(), 128)


def kept_bytes(mini: Any, *, layers: int, vision_layers: int, kind: torch.dtype, checkpointing: bool = False) -> int:
    """Bytes that a real forward pass of 256 tokens, 4 frames of 64 patches among them, keeps for its backward pass."""
    config = deepcopy(mini)
    config.text_config.num_hidden_layers, config.vision_config.depth = layers, vision_layers
    config.vision_config.deepstack_visual_indexes = [0]
    model = Qwen3VLForConditionalGeneration(config).to(kind).train()
    use_packed_attention(model)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    row = PackedRow(
        ids=torch.tensor([config.image_token_id] * 64 + [9] * 192),
        positions=torch.arange(256).repeat(3, 1),
        cu_seqlens=torch.tensor([0, 256], dtype=torch.int32),
        pixel_values=torch.zeros(256, 1536),
        image_grid_thw=torch.tensor([[1, 8, 8]] * 4),
        logit_positions=torch.tensor([1]),
        targets=torch.tensor([7]),
    )
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        Learner(model)(row)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in own)


@pytest.mark.parametrize(("kind", "each"), [(torch.bfloat16, 2), (torch.float32, 4)])
def test_layers_keep_as_many_bytes_as_a_real_pass_does(mini: Any, kind: torch.dtype, each: int) -> None:
    least, model = kept_bytes(mini, layers=2, vision_layers=1, kind=kind), ModelSizes.from_config(mini, "mini")
    layer = kept_bytes(mini, layers=3, vision_layers=1, kind=kind) - least
    assert layer == pytest.approx(256 * model.text_layer_bytes(each), rel=0.02)
    block = kept_bytes(mini, layers=2, vision_layers=2, kind=kind) - least
    assert block == pytest.approx(256 * model.vision_layer_bytes(each), rel=0.02)


def test_with_checkpointing_layers_keep_their_input_alone(mini: Any) -> None:
    def kept(layers: int, vision_layers: int) -> int:
        return kept_bytes(mini, layers=layers, vision_layers=vision_layers, kind=torch.bfloat16, checkpointing=True)

    assert kept(3, 1) - kept(2, 1) == 256 * 128 * 2
    assert kept(2, 2) - kept(2, 1) == 256 * 128 * 2


def test_memory_of_a_supervised_run_by_hand() -> None:
    assert values(training_memory(SUPERVISED)) == pytest.approx(
        {
            "weights": 4 * 6100 / 2,
            "gradients": 4 * 6100 / 2,
            "AdamW moments": 8 * 6100 / 2,
            "gathered weights": 2 * (1100 + 2 * 1000),
            "gathered gradients": 2 * (1100 + 1000) + 4 * 1000,
            "activations, text": 100 * 4 * (16 * 10 + 10 * 15 + 8 * 20),
            # Three quarters of the tokens are frames and their times; of these, 30 of 40 are visual.
            "activations, vision": 56.25 * 4 * 2 * 2 * (10 * 8 + 2 * 16),
            "logits": 25 * 50 * 12,
        }
    )


def test_checkpointing_keeps_inputs_and_one_layer_where_logits_are_fewer() -> None:
    lines = values(training_memory(replace(SUPERVISED, gradient_checkpointing=True)))
    assert "logits" not in lines
    assert lines["activations, text"] == 100 * 4 * 10 * 2
    assert lines["activations, vision"] == 56.25 * 4 * 2 * 8 * 2
    assert lines["layer computed again"] == 56.25 * 4 * 224  # a text layer's 47,000 are fewer


def test_a_reinforced_run_has_a_reference_and_its_fullest_row_counts() -> None:
    lines = values(training_memory(REINFORCED))
    assert lines["reference model"] == 4 * 6100 / 2
    assert lines["gathered weights"] == 2 * (1100 + 2 * 1000 + 1100)
    assert (lines["logits"], lines["activations, vision"]) == (0, 75 * 4 * 2 * 224)  # a row of frames needs more
    words = replace(TOY, vocabulary=50_000)
    lines = values(training_memory(replace(REINFORCED, model=words)))
    assert (lines["logits"], lines["activations, vision"]) == (100 * 50_000 * 12, 0)


@pytest.mark.parametrize("gpu", GPUS)
def test_a_rollout_gpus_parts_add_up_to_all_it_has(gpu: str) -> None:
    model = ModelSizes.from_config(published("8B"), "8B")
    lines = rollout_memory(replace(REINFORCED, model=model), GPUS[gpu])
    assert math.fsum(line.value for line in lines) == pytest.approx(GPUS[gpu].memory)
    assert values(lines)["weights"] == 2 * 8_767_123_696
    assert model.cache_bytes == 147_456  # keys and values of 36 layers, 8 heads of 128, 2 bytes each
    assert rollout_memory(SUPERVISED, GPUS[gpu]) == []


def test_tokens_of_a_reinforced_run_by_hand() -> None:
    usual, most = sample_tokens(REINFORCED), sample_tokens(REINFORCED, maximum=True)
    assert (usual.overview, usual.prompt, usual.responses) == (8 * 40, 300, 100)
    assert (usual.evidence, usual.windows, usual.summaries) == (2.5 * 20, 2.5 * (300 + 2 * 40), 2.5 * 20)
    assert (most.overview, most.responses, most.evidence) == (12 * 40, 4 * 100, 3 * 5 * 40)
    assert usual.total == usual.main + usual.windows + usual.summaries
    lines = {line.name: line for line in step_tokens(REINFORCED)}
    assert lines["a step"].value == 8 * usual.total and lines["learned a step"].value == 8 * 150
    assert lines["a step"].maximum == 8 * most.total


def test_sub_agents_that_are_not_learned_from_are_left_out_of_a_step() -> None:
    assert REINFORCED.sampling is not None
    alone = replace(REINFORCED, sampling=replace(REINFORCED.sampling, sub_agents=False))
    assert values(step_tokens(alone))["a step"] == 8 * sample_tokens(REINFORCED).main


def test_windows_that_come_back_as_frames_need_no_sub_agents() -> None:
    assert REINFORCED.sampling is not None
    settings = REINFORCED.sampling.settings.model_copy(update={"evidence": "frames"})
    frames = sample_tokens(replace(REINFORCED, sampling=replace(REINFORCED.sampling, settings=settings)))
    assert (frames.evidence, frames.windows, frames.summaries) == (2.5 * 2 * 40, 0, 0)


def test_seconds_of_an_update_by_hand() -> None:
    (update,) = step_seconds(SUPERVISED, GPUS["h100"])
    # A conversation: 8 frames of 40 tokens, a prompt of 300, a response of 256.
    weights = 4000 * 876 + (1000 * 4 + 100) * 240 + 50 * 10 * 256
    assert update.value == pytest.approx(2 * 3 * 2 * weights / (2 * 989e12 * 0.4))
    (again,) = step_seconds(replace(SUPERVISED, gradient_checkpointing=True), GPUS["h100"])
    assert again.value == pytest.approx(update.value * 4 / 3)


def test_seconds_of_writing_by_hand() -> None:
    lines = values(step_seconds(REINFORCED, GPUS["h100"]))
    total = 8 * 40 + 300 + 100 + 50 + 2.5 * 380 + 50
    # Two turns of 50 tokens and a summary of 20, for 8 rollouts of which 4 run at once.
    read = 2 * (6100 - 1000) + 4 * total * 2 * 2 * 4 * 5
    assert lines["rollouts: writing"] == pytest.approx(8 / 4 * 120 * read / (3.35e12 * 0.6))


def test_the_papers_run_fits_its_node_and_shares_add_up() -> None:
    made = make_plan(run_sizes(grpo(row_tokens=20480)))
    assert made.unfit == []
    assert (made.sizes.gpus, made.sizes.sampling and made.sizes.sampling.gpus, made.sizes.samples) == (7, 1, 56)
    assert made.sizes.frame_tokens == 49 and made.sizes.budgets == (4, 8, 16, 32, 64)
    assert sum(made.shares.values()) == pytest.approx(1) and made.shares["rollouts"] > made.shares["update"]


def test_what_does_not_fit_is_said_with_what_would() -> None:
    recipe = load_recipe("qwen3vl_8b_sft")
    made = make_plan(run_sizes(recipe))
    assert made.unfit == ["a training GPU needs 162.7 GB of 80; what would fit: 3 training GPUs"]
    assert make_plan(run_sizes(recipe, gpus=3)).unfit == []
    assert make_plan(run_sizes(recipe, gpus=2)).unfit[0].endswith("what would fit: 3 training GPUs")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"gradient_checkpointing": False, "row_tokens": 20480}, ["267.9 GB of 80; what would fit: gradient_"]),
        ({"row_tokens": 40960}, ["what would fit: row_tokens 20480"]),
        ({"row_tokens": 16384}, ["19,948 tokens, and one of more than", "fit: row_tokens 20480"]),
        ({"settings": {"max_new_tokens": 200_000}}, ["a rollout GPU needs", "only a smaller model"]),
    ],
)  # fmt: skip
def test_each_thing_that_does_not_fit_has_its_line(changes: dict[str, Any], told: list[str]) -> None:
    unfit = " / ".join(make_plan(run_sizes(grpo(**changes))).unfit)
    assert all(part in unfit for part in told), unfit


def test_where_no_change_alone_would_do_two_together_are_named() -> None:
    recipe = load_recipe("qwen3vl_8b_sft", ["gradient_checkpointing=false", "row_tokens=32768"])
    (line,) = make_plan(run_sizes(recipe)).unfit
    assert " training GPUs with gradient_checkpointing" in line and " training GPUs with row_tokens " in line


def test_gpus_that_a_steps_rollouts_do_not_divide_by_are_refused_and_never_advised() -> None:
    with pytest.raises(SettingsError, match="--gpus 9: prompts x group = 7 x 8 = 56 rollouts do not divide by 9"):
        run_sizes(grpo(), gpus=9)
    (line,) = make_plan(run_sizes(grpo(row_tokens=20480), gpus=2)).unfit
    assert line.endswith("what would fit: 7 training GPUs")


def test_a_recipe_is_known_by_its_phases(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(json.dumps(grpo().model_dump(mode="json")))
    assert isinstance(load_any_recipe(file, ["group=4"]), GrpoRecipe)
    assert load_any_recipe("mini_sft") == load_recipe("mini_sft")
    with pytest.raises(SettingsError, match="unknown key 'bath'; did you mean 'batch'"):
        load_any_recipe("mini_sft", ["bath=3"])


def test_a_run_in_process_is_planned_on_one_gpu_of_each_kind(start: Path) -> None:
    recipe = grpo(model={"start": str(start)}, data={"kind": "world"}, rollouts={"backend": "transformers"})
    shape = run_sizes(recipe)
    assert (shape.gpus, shape.sampling and shape.sampling.gpus, shape.frame_tokens) == (1, 1, 4)


@pytest.fixture
def command() -> Callable[..., Any]:
    app = typer.Typer()
    app.command()(plan)
    return lambda *arguments: CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160", "HF_HUB_OFFLINE": "1"})


def test_the_command_says_first_what_does_not_fit(command: Callable[..., Any]) -> None:
    result = command("--recipe", "qwen3vl_8b_sft", "--gpu", "a100")
    assert result.exit_code == 0
    first, second, *rest = result.stdout.splitlines()
    assert first == "does not fit: a training GPU needs 162.7 GB of 80; what would fit: 3 training GPUs"
    assert second == "qwen3vl_8b_sft: Qwen/Qwen3-VL-8B-Instruct on A100 80 GB: 1 for training"
    assert any("8,767,123,696" in line for line in rest)


def test_as_json_there_is_all_of_it(command: Callable[..., Any]) -> None:
    made = json.loads(command("--recipe", "qwen3vl_8b_sft", "--gpus", "8", "--json").stdout)
    assert made["recipe"] == "qwen3vl_8b_sft" and made["unfit"] == [] and made["shape"]["gpus"] == 8
    assert sum(made["shape"]["model"]["parameters"].values()) == 8_767_123_696
    assert {line["name"] for line in made["training"]} >= {"weights", "gradients", "AdamW moments"}
    assert made["shares"] == {"rollouts": 0.0, "update": 1.0}


def test_a_gpu_that_is_not_known_is_told(command: Callable[..., Any]) -> None:
    result = command("--recipe", "qwen3vl_8b_sft", "--gpu", "b7")
    assert str(result.exception) == "--gpu: unknown GPU 'b7'; choose from a100, h100, h200"
