"""The sizes of a run's model, rows and samples, which determine its memory, tokens and time.

They come from a recipe and a model's configuration; no model is loaded.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import RootModel

from paravt_infer.budget import SYSTEM_TOKENS
from paravt_infer.errors import ModelError, SettingsError
from paravt_infer.model import load_pretrained
from paravt_infer.settings import Settings
from paravt_training.grpo.recipe import GrpoRecipe, load_grpo_recipe
from paravt_training.model.random_checkpoint import build_mini, qwen3_vl_config
from paravt_training.recipe import MINI, MiniShape, ParquetData, SftRecipe, WorldData, load_recipe, read_recipe

_COMMON: dict[str, Any] = {"kv_heads": 8, "head_dim": 128, "vision_heads": 16}
_SMALL_VISION: dict[str, Any] = {"vision_layers": 24, "vision_hidden": 1024, "vision_intermediate": 4096}
_LARGE_VISION: dict[str, Any] = {"vision_layers": 27, "vision_hidden": 1152, "vision_intermediate": 4304}
PUBLISHED: dict[str, tuple[MiniShape, tuple[int, ...]]] = {
    "2B": (MiniShape(hidden=2048, intermediate=6144, layers=28, heads=16, **_COMMON, **_SMALL_VISION), (5, 11, 17)),
    "4B": (MiniShape(hidden=2560, intermediate=9728, layers=36, heads=32, **_COMMON, **_SMALL_VISION), (5, 11, 17)),
    "8B": (MiniShape(hidden=4096, intermediate=12288, layers=36, heads=32, **_COMMON, **_LARGE_VISION), (8, 16, 24)),
}
"""Shapes and deepstack layers of the published dense Qwen3-VL models, so that plans for them need no hub."""

FRAME_TEXT_TOKENS = 10
"""Text tokens per frame: its time, one token per digit, and the tokens before and after its visual tokens."""
CALLS = 2.5
"""Expected tool calls per rollout: those of the paper's cold start (Table 2, kappa). RL reduces them."""
RESPONSE_TOKENS = 256
"""Assumed learned tokens of an SFT conversation, which the recipe does not determine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """The sizes of a Qwen3-VL model."""

    name: str
    parameters: dict[str, int]
    """Exact counts of the parts `vision tower`, `mergers`, `text layers`, `embeddings`, `head`."""
    layers: int
    hidden: int
    intermediate: int
    query_size: int
    """Query heads times head size."""
    key_size: int
    """Key and value heads times head size."""
    vocabulary: int
    vision_layers: int
    vision_hidden: int
    vision_intermediate: int
    patches: int
    """Per visual token."""
    token_side: int
    """Width and height in pixels of what a visual token covers."""

    @property
    def total(self) -> int:
        return sum(self.parameters.values())

    def text_layer_bytes(self, number_bytes: int) -> int:
        """Activation bytes per token that a text layer keeps for the backward pass.

        Both norms (their inputs also in fp32), queries, keys and values before and after their norms and rotation,
        the attention's output, the gated MLP.

        Args:
            number_bytes: 2 for bf16, 4 for fp32.
        """
        attention = (8 + 4 * number_bytes) * self.hidden + (4 + 3 * number_bytes) * (self.query_size + self.key_size)
        return attention + 4 * number_bytes * self.intermediate

    def vision_layer_bytes(self, number_bytes: int) -> int:
        """The same per patch, of a layer of the vision tower."""
        return number_bytes * (10 * self.vision_hidden + 2 * self.vision_intermediate)

    @property
    def cache_bytes(self) -> int:
        """Bytes per token in a KV cache in bf16."""
        return 2 * 2 * self.layers * self.key_size

    @classmethod
    def from_config(cls, config: Any, name: str) -> "ModelSizes":
        """The sizes of a configuration. Parameters are counted on torch's meta device, without making weights.

        >>> ModelSizes.from_config(published("8B"), "8B").total
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
            query_size=text.num_attention_heads * text.head_dim,
            key_size=text.num_key_value_heads * text.head_dim,
            vocabulary=text.vocab_size,
            vision_layers=vision.depth,
            vision_hidden=vision.hidden_size,
            vision_intermediate=vision.intermediate_size,
            patches=vision.spatial_merge_size**2,
            token_side=vision.patch_size * vision.spatial_merge_size,
        )


def _part(parameter: str) -> str:
    if ".visual." in parameter:
        return "mergers" if "merger" in parameter else "vision tower"
    if parameter.startswith("lm_head"):
        return "head"
    return "embeddings" if "embed_tokens" in parameter else "text layers"


def published(size: str) -> Any:
    """The configuration of a published model, by its size: 2B, 4B or 8B."""
    shape, deepstack = PUBLISHED[size]
    return qwen3_vl_config(shape, vocab_size=151936, deepstack=deepstack, tied=size != "8B")


def load_config(start: str, mini: MiniShape, frame: int) -> Any:
    """The configuration of the model that a run starts from.

    Args:
        start: as in a recipe: `mini`, a folder or a hub id.
        mini: the shape of a model that starts from `mini`.
        frame: width and height of its frames in pixels.

    Raises:
        SettingsError: could not load the configuration, or it is not of a dense Qwen3-VL model.
    """
    if start == MINI:
        # Its vocabulary depends on its tokenizer, so it is made, which takes a second.
        with TemporaryDirectory() as folder:
            return load_pretrained(str(build_mini(Path(folder), mini, frame=frame)), "AutoConfig")
    size = re.fullmatch(r"Qwen/Qwen3-VL-(2B|4B|8B)-(?:Instruct|Thinking)", start)
    if size and not Path(start).exists():
        return published(size[1])
    try:
        config = load_pretrained(start, "AutoConfig")
    except ModelError as error:  # the cold start may not have been trained yet
        example = "--set model.start=Qwen/Qwen3-VL-8B-Instruct"
        raise SettingsError(f"{error}; to plan before it exists, name a model of the same size: {example}") from None
    if config.model_type != "qwen3_vl":
        raise SettingsError(f"{start}: a model of type {config.model_type}; plans need a dense Qwen3-VL model")
    return config


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSizes:
    """The rollout half of a GRPO run."""

    gpus: int
    """For rollouts; each holds the whole model."""
    concurrency: int
    """Maximum number of concurrent episodes on all of them."""
    reference: bool
    """Whether there is a frozen reference model for the KL term."""
    sub_agents: bool
    """Whether sub-agents' contexts are learned from."""
    settings: Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSizes:
    """Everything about a run that its memory, tokens and time depend on."""

    model: ModelSizes
    gpus: int
    """For training."""
    row_tokens: int
    gradient_checkpointing: bool
    bf16: bool
    """Whether layers compute in bf16; otherwise in fp32."""
    samples: int
    """Per step: conversations, or rollouts with their sub-agents."""
    frame_tokens: int
    """Visual tokens per frame."""
    budgets: tuple[int, ...]
    """Overview frame budgets, equally likely."""
    sampling: RolloutSizes | None = None
    """None for SFT."""


def load_any_recipe(file: str | Path, changes: Sequence[str] = ()) -> SftRecipe | GrpoRecipe:
    """Load an SFT or GRPO recipe from a YAML file, or the bundled one of that name. SFT recipes have `phases`.

    Raises:
        SettingsError: one line that names the file, the key and what is allowed.
    """
    keys = read_recipe(file, changes, RootModel[dict[str, Any]], "*.yaml").root
    return load_recipe(file, changes) if "phases" in keys else load_grpo_recipe(file, changes)


def run_sizes(recipe: SftRecipe | GrpoRecipe, *, gpus: int | None = None) -> RunSizes:
    """The sizes of a recipe's run; of an SFT recipe, those of the last phase.

    Args:
        gpus: training GPUs, in place of the recipe's; an SFT recipe names none and runs on one.

    Raises:
        SettingsError: could not load the model's configuration, it is not of a dense Qwen3-VL model, or a step's
            rollouts do not divide by `gpus`.
    """
    start, data = recipe.model.start, recipe.data
    frame_side = data.frame if isinstance(data, WorldData) else 0
    model = ModelSizes.from_config(load_config(start, recipe.model.mini, frame_side), start)
    sampling = None
    if isinstance(recipe, SftRecipe):
        phase = recipe.phases[-1]
        train_gpus, samples = 1, phase.batch or recipe.batch
        pixels, budgets = frame_side**2, tuple[int, ...](phase.mix.budgets)
        if isinstance(data, ParquetData):
            pixels, budgets = data.max_pixels, (data.frames,)
    else:
        try:
            recipe.check_processes(gpus or 1)
        except ValueError as error:
            raise SettingsError(f"--gpus {gpus}: {error}") from None
        in_process, gating = recipe.rollouts.backend == "transformers", recipe.gating
        settings = recipe.episode_settings(frames=gating.frames, seed=0)
        train_gpus, samples = 1 if in_process else recipe.gpus.train, recipe.prompts * recipe.group
        pixels = frame_side**2 or settings.max_pixels
        budgets = gating.budgets if gating.enabled else (gating.frames,)
        sampling = RolloutSizes(
            gpus=1 if in_process else recipe.gpus.rollout,
            concurrency=recipe.rollouts.concurrency,
            reference=recipe.objective.kl > 0,
            sub_agents=recipe.sub_agents,
            settings=settings,
        )
    return RunSizes(
        model=model,
        gpus=gpus or train_gpus,
        row_tokens=recipe.row_tokens,
        gradient_checkpointing=recipe.gradient_checkpointing,
        bf16=recipe.precision != "fp32",
        samples=samples,
        frame_tokens=max(1, pixels // model.token_side**2),
        budgets=budgets,
        sampling=sampling,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleTokens:
    """The tokens of a conversation, or of a rollout with its sub-agents, by what they are."""

    overview: float
    """Frames with their times."""
    prompt: float
    responses: float
    evidence: float = 0.0
    """Summaries or frames of windows that the main agent gets."""
    windows: float = 0.0
    """Sub-agents' input: a prompt and frames."""
    summaries: float = 0.0
    """Sub-agents' output."""
    frames: float
    """The number of frames, of the overview and the windows."""

    @property
    def main(self) -> float:
        """The main agent's final context."""
        return self.overview + self.prompt + self.responses + self.evidence

    @property
    def output(self) -> float:
        return self.responses + self.summaries

    @property
    def total(self) -> float:
        return self.main + self.windows + self.summaries


def sample_tokens(sizes: RunSizes, *, maximum: bool = False, learned: bool = False) -> SampleTokens:
    """The tokens of a sample: those expected, or the maximum that the settings allow.

    Expected are the mean budget; `CALLS` calls in one turn, and a turn with the answer; texts half as long as allowed.
    The responses of an SFT conversation are assumed to have `RESPONSE_TOKENS`.

    Args:
        learned: only what is learned from, without sub-agents if the recipe leaves them out.
    """
    frame = sizes.frame_tokens + FRAME_TEXT_TOKENS
    budget = max(sizes.budgets) if maximum else mean(sizes.budgets)
    overview = {"overview": budget * frame, "prompt": SYSTEM_TOKENS}
    if sizes.sampling is None:
        return SampleTokens(**overview, responses=RESPONSE_TOKENS, frames=budget)
    settings, share = sizes.sampling.settings, 1 if maximum else 0.5
    turns = settings.max_tool_turns + 1 if maximum else 2
    calls = settings.max_tool_turns * settings.max_calls if maximum else CALLS
    main = overview | {"responses": turns * share * settings.max_new_tokens}
    window_frames = calls * settings.window_frames
    if settings.evidence == "frames":
        return SampleTokens(**main, evidence=window_frames * frame, frames=budget + window_frames)
    summaries = calls * share * settings.summary_tokens
    if learned and not sizes.sampling.sub_agents:
        return SampleTokens(**main, evidence=summaries, frames=budget)
    windows = calls * SYSTEM_TOKENS + window_frames * frame
    return SampleTokens(**main, evidence=summaries, windows=windows, summaries=summaries, frames=budget + window_frames)
