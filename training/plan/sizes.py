"""The sizes that a training run's memory, tokens and time follow from: its model's, its rows', its samples'.

Read from a recipe and a model's configuration; no model is loaded.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel, ConfigDict

from paravt_infer.budget import SYSTEM_TOKENS
from paravt_infer.errors import ModelError, SettingsError
from paravt_infer.model import load_pretrained
from paravt_infer.settings import Settings
from paravt_training.grpo.recipe import GrpoRecipe, load_grpo_recipe
from paravt_training.model.mini import build_mini
from paravt_training.recipe import MINI, MiniShape, ParquetData, SftRecipe, WorldData, load_recipe, read_recipe

PUBLISHED: dict[str, dict[str, dict[str, Any]]] = {
    size: {
        "text_config": {
            "vocab_size": 151936,
            "hidden_size": hidden,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
        "vision_config": {
            "depth": blocks,
            "hidden_size": block_hidden,
            "intermediate_size": block_intermediate,
            "num_heads": 16,
            "out_hidden_size": hidden,
            "deepstack_visual_indexes": deepstack,
        },
    }
    for size, hidden, intermediate, layers, heads, blocks, block_hidden, block_intermediate, deepstack in (
        ("2B", 2048, 6144, 28, 16, 24, 1024, 4096, [5, 11, 17]),
        ("4B", 2560, 9728, 36, 32, 24, 1024, 4096, [5, 11, 17]),
        ("8B", 4096, 12288, 36, 32, 27, 1152, 4304, [8, 16, 24]),
    )
}
"""The sizes of the published dense Qwen3-VL models, so that they are planned for without the hub."""

FRAME_WORDS = 10
"""Text tokens beside a frame's own: its time, one token a digit, and the frame's two borders."""
CALLS = 2.5
"""Tool calls a rollout: what the paper's cold start makes (Table 2, kappa). RL brings it down."""
LEARNED = 256
"""Tokens that a supervised conversation teaches; the recipe does not tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """The sizes of a Qwen3-VL model."""

    name: str
    parameters: dict[str, int]
    """Exact counts of the parts `vision tower`, `mergers`, `text layers`, `embeddings`, `head`."""
    layers: int
    hidden: int
    intermediate: int
    queries: int
    """Heads times their size."""
    keys: int
    """Key and value heads times their size."""
    vocabulary: int
    blocks: int
    """Layers of the vision tower."""
    block_hidden: int
    block_intermediate: int
    patches: int
    """That a visual token is made of."""
    side: int
    """Pixels of a visual token, across and down."""

    @property
    def total(self) -> int:
        return sum(self.parameters.values())

    def layer_bytes(self, each: int) -> int:
        """Bytes a token that a text layer keeps for the backward pass, computing in numbers of `each` bytes.

        Both norms (their input in fp32 too), queries, keys and values before and after their norms and rotation,
        the attention's output, the gated middle.
        """
        kept = (8 + 4 * each) * self.hidden + (4 + 3 * each) * (self.queries + self.keys)
        return kept + 4 * each * self.intermediate

    def block_bytes(self, each: int) -> int:
        """The same of a patch in a layer of the vision tower."""
        return each * (10 * self.block_hidden + 2 * self.block_intermediate)

    @property
    def cache_bytes(self) -> int:
        """Bytes a token in a KV cache in bf16."""
        return 2 * 2 * self.layers * self.keys

    @classmethod
    def of(cls, config: Any, name: str) -> "ModelSizes":
        """The sizes that a configuration gives, its parameters counted on torch's meta device: no weights are made.

        >>> ModelSizes.of(published("8B"), "8B").total
        8767123696
        """
        import torch
        from transformers import Qwen3VLForConditionalGeneration

        with torch.device("meta"):
            network = Qwen3VLForConditionalGeneration(config)
        counts = dict.fromkeys(("vision tower", "mergers", "text layers", "embeddings", "head"), 0)
        for parameter, tensor in network.named_parameters():
            counts[_part(parameter)] += tensor.numel()
        text, vision = config.text_config, config.vision_config
        return cls(
            name=name,
            parameters=counts,
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            intermediate=text.intermediate_size,
            queries=text.num_attention_heads * text.head_dim,
            keys=text.num_key_value_heads * text.head_dim,
            vocabulary=text.vocab_size,
            blocks=vision.depth,
            block_hidden=vision.hidden_size,
            block_intermediate=vision.intermediate_size,
            patches=vision.spatial_merge_size**2,
            side=vision.patch_size * vision.spatial_merge_size,
        )


def _part(parameter: str) -> str:
    if ".visual." in parameter:
        return "mergers" if "merger" in parameter else "vision tower"
    if parameter.startswith("lm_head"):
        return "head"
    return "embeddings" if "embed_tokens" in parameter else "text layers"


def published(size: str) -> Any:
    """The configuration of a published model, by its size: 2B, 4B or 8B."""
    from transformers import Qwen3VLConfig

    return Qwen3VLConfig(**PUBLISHED[size], tie_word_embeddings=size != "8B")


def config_of(start: str, mini: MiniShape, frame: int) -> Any:
    """The configuration of the model that a run starts from.

    Args:
        start: as in a recipe: `mini`, a folder or a hub id.
        mini: of account where `start` is `mini`, as is `frame`, its frames' sides in pixels.

    Raises:
        SettingsError: the folder or the hub has no such model, or it is not a dense Qwen3-VL model.
    """
    if start == MINI:
        # How many words it has only its tokenizer tells: it is made, which takes a second.
        with TemporaryDirectory() as folder:
            return load_pretrained(str(build_mini(Path(folder), mini, frame=frame)), "AutoConfig")
    known = re.fullmatch(r"Qwen/Qwen3-VL-(2B|4B|8B)-(?:Instruct|Thinking)", start)
    if known and not Path(start).exists():
        return published(known[1])
    try:
        config = load_pretrained(start, "AutoConfig")
    except ModelError as error:  # the cold start may not have been trained yet
        like = "--set model.start=Qwen/Qwen3-VL-8B-Instruct"
        raise SettingsError(f"{error}; to plan before it is there, name a model of its sizes: {like}") from None
    if config.model_type != "qwen3_vl":
        raise SettingsError(f"{start}: a model of type {config.model_type}; only dense Qwen3-VL models can be planned")
    return config


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSizes:
    """The half of a GRPO run that makes rollouts."""

    gpus: int
    """Each holds the whole model."""
    at_once: int
    """Episodes under way, at most, on all of them."""
    reference: bool
    """Whether a frozen reference model is kept, for the divergence."""
    sub_agents: bool
    """Whether their contexts are learned from."""
    settings: Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSizes:
    """A run, as far as memory, tokens and time depend on it."""

    model: ModelSizes
    gpus: int
    """That train."""
    row_tokens: int
    gradient_checkpointing: bool
    bf16: bool
    """Whether layers compute in it; else in fp32."""
    samples: int
    """A step: conversations, or rollouts with their sub-agents."""
    frame_tokens: int
    """Visual tokens of a frame."""
    budgets: tuple[int, ...]
    """Frames an overview may have, each as likely."""
    sampling: RolloutSizes | None = None
    """None where a run is supervised."""


def load_any_recipe(file: str | Path, changes: Sequence[str] = ()) -> SftRecipe | GrpoRecipe:
    """The recipe of a YAML file or of that name in `training/recipes`: a supervised one has `phases`.

    Raises:
        SettingsError: one line that names the file, the key and what is allowed.
    """
    keys = read_recipe(file, changes, _AnyRecipe, "*.yaml").model_extra or {}
    return load_recipe(file, changes) if "phases" in keys else load_grpo_recipe(file, changes)


class _AnyRecipe(BaseModel):
    model_config = ConfigDict(extra="allow")


def run_sizes(recipe: SftRecipe | GrpoRecipe, *, gpus: int | None = None) -> RunSizes:
    """The shape of a recipe's run on GPUs. Of a supervised recipe's phases, the last one counts.

    Args:
        gpus: that train, in place of the recipe's; a recipe that names none runs on one.

    Raises:
        ModelError: the model's configuration cannot be had.
        SettingsError: it is of another kind, or a step's rollouts do not divide by `gpus`.
    """
    start, data = recipe.model.start, recipe.data
    drawn = data.frame if isinstance(data, WorldData) else 0
    model = ModelSizes.of(config_of(start, recipe.model.mini, drawn), start)
    common: dict[str, Any] = {
        "model": model,
        "row_tokens": recipe.row_tokens,
        "gradient_checkpointing": recipe.gradient_checkpointing,
        "bf16": recipe.precision != "fp32",
    }
    if isinstance(recipe, SftRecipe):
        last = recipe.phases[-1]
        pixels = drawn**2
        budgets: tuple[int, ...] = tuple(last.mix.budgets)
        if isinstance(data, ParquetData):
            pixels, budgets = data.max_pixels, (data.frames,)
        return RunSizes(
            **common,
            gpus=gpus or 1,
            samples=last.batch or recipe.batch,
            frame_tokens=_frame_tokens(model, pixels),
            budgets=budgets,
        )
    if gpus:
        try:
            recipe.check_processes(gpus)
        except ValueError as error:
            raise SettingsError(f"--gpus {gpus}: {error}") from None
    in_process, gating = recipe.rollouts.backend == "transformers", recipe.gating
    settings = recipe.episode_settings(frames=gating.frames, seed=0)
    return RunSizes(
        **common,
        gpus=gpus or (1 if in_process else recipe.gpus.train),
        samples=recipe.prompts * recipe.group,
        frame_tokens=_frame_tokens(model, drawn**2 or settings.max_pixels),
        budgets=gating.budgets if gating.enabled else (gating.frames,),
        sampling=RolloutSizes(
            gpus=1 if in_process else recipe.gpus.rollout,
            at_once=recipe.rollouts.concurrency,
            reference=recipe.objective.kl > 0,
            sub_agents=recipe.sub_agents,
            settings=settings,
        ),
    )


def _frame_tokens(model: ModelSizes, pixels: int) -> int:
    return max(1, pixels // model.side**2)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleTokens:
    """The tokens of a conversation, or of a rollout with its sub-agents."""

    overview: float
    """Its frames with their times."""
    prompt: float
    responses: float
    evidence: float = 0.0
    """Summaries or windows' frames, as the main agent reads them."""
    windows: float = 0.0
    """What sub-agents are fed: a prompt and their frames."""
    summaries: float = 0.0
    """What sub-agents write."""
    frames: float
    """A number of frames: the overview's and the windows'."""

    @property
    def main(self) -> float:
        """The main agent's context at its end."""
        return self.overview + self.prompt + self.responses + self.evidence

    @property
    def fed(self) -> float:
        return self.overview + self.prompt + self.evidence + self.windows

    @property
    def written(self) -> float:
        return self.responses + self.summaries

    @property
    def total(self) -> float:
        return self.fed + self.written


def sample_tokens(shape: RunSizes, *, most: bool = False, learned: bool = False) -> SampleTokens:
    """The tokens of a sample: those expected, or the most that the settings allow.

    Expected are the mean budget; `CALLS` calls in one turn, and a turn with the answer; texts half as long as they
    may be. What a supervised conversation says is taken for `LEARNED` tokens.

    Args:
        learned: only what is learned from: without sub-agents where the recipe leaves them out.
    """
    frame = shape.frame_tokens + FRAME_WORDS
    budget = max(shape.budgets) if most else mean(shape.budgets)
    overview = {"overview": budget * frame, "prompt": SYSTEM_TOKENS}
    if shape.sampling is None:
        return SampleTokens(**overview, responses=LEARNED, frames=budget)
    settings, part = shape.sampling.settings, 1 if most else 0.5
    turns = settings.max_tool_turns + 1 if most else 2
    calls = settings.max_tool_turns * settings.max_calls if most else CALLS
    main = overview | {"responses": turns * part * settings.max_new_tokens}
    looked = calls * settings.window_frames
    if settings.evidence == "frames":
        return SampleTokens(**main, evidence=looked * frame, frames=budget + looked)
    said = calls * part * settings.summary_tokens
    if learned and not shape.sampling.sub_agents:
        return SampleTokens(**main, evidence=said, frames=budget)
    windows = calls * SYSTEM_TOKENS + looked * frame
    return SampleTokens(**main, evidence=said, windows=windows, summaries=said, frames=budget + looked)
