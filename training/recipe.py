"""Recipes: everything that determines a training run, validated before anything is loaded.

A recipe is a YAML file, bundled in `training/recipes` or anywhere else. Its key `base` names a recipe that it modifies:
its keys override that recipe's, mappings key by key. An unknown key or a wrong value is an error of one line that names
the key and what is allowed.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from paravt_infer import bundled
from paravt_infer.errors import SettingsError, suggestion
from paravt_infer.schema import FrozenModel, validation_message

FOLDER = Path(__file__).parent / "recipes"
R = TypeVar("R", bound=BaseModel)
MINI = "mini"
"""The `model.start` of a model with random weights, in place of a folder or a hub id."""


class MiniShape(FrozenModel):
    """The sizes of the small model that a run from `mini` starts with."""

    layers: int = Field(default=4, ge=1)
    hidden: int = Field(default=128, ge=16, multiple_of=16)
    intermediate: int = Field(default=384, ge=16)
    heads: int = Field(default=4, ge=1)
    kv_heads: int = Field(default=2, ge=1)
    head_dim: int = Field(default=32, ge=16, multiple_of=16)
    vision_layers: int = Field(default=2, ge=1)
    """The features of each go to a text layer (deepstack)."""
    vision_hidden: int = Field(default=128, ge=16, multiple_of=16)
    vision_intermediate: int = Field(default=256, ge=16)
    vision_heads: int = Field(default=4, ge=1)
    merge: Literal[1, 2, 4] = 2
    """A visual token covers merge x merge patches of 16 x 16 pixels."""
    vocabulary: int = Field(default=1000, ge=300)
    """Maximum tokens before tags and special tokens are added."""


class ModelConfig(FrozenModel):
    """The model that is trained."""

    start: str = MINI
    """`mini`, `bundled` (the bundled checkpoint), or the folder or hub id of a Qwen3-VL checkpoint."""
    mini: MiniShape = MiniShape()
    """Ignored unless `start` is `mini`."""

    @field_validator("start")
    @classmethod
    def _bundled_path(cls, start: str) -> str:
        return str(bundled.checkpoint_path()) if start == "bundled" else start


class WorldData(FrozenModel):
    """The sample world: endless data from a seed. Frames are drawn, no files are read."""

    kind: Literal["world"]
    seed: int = 0
    frame: int = Field(default=64, ge=32, multiple_of=32)
    """Width and height of frames in pixels; a `mini` model takes no other size."""
    noise: float = Field(default=6.0, ge=0)
    """Maximum standard deviation of the Gaussian noise per pixel, of 255."""
    brightness: float = Field(default=0.06, ge=0, lt=1)
    """Maximum relative change of brightness, up or down."""
    compressed: float = Field(default=0.6, ge=0, le=1)
    """The share of traces whose frames have JPEG compression artefacts."""


class ParquetData(FrozenModel):
    """Parquet files of conversations: `messages` as a JSON string, with videos as parts of them."""

    kind: Literal["parquet"]
    files: list[str] = Field(min_length=1)
    """Paths; * and ** are wildcards."""
    videos: str | None = None
    """The folder that video paths are relative to; by default that of the row's Parquet file."""
    prefixes: dict[str, str] = {}
    """Folders for video paths by their prefix, such as `selfqa/`, in place of `videos`."""
    fps: float = Field(default=1.0, gt=0)
    frames: int = Field(default=64, ge=1)
    """Maximum frames per video part, unless the part sets its own."""
    min_pixels: int = Field(default=784, ge=1)
    max_pixels: int = Field(default=50176, ge=1)
    seed: int = 0
    """Seed of the order of rows, which differs in each epoch."""


class TraceMix(FrozenModel):
    """Weights of the sample world's kinds of traces, including short ones that teach one skill."""

    caption: float = Field(default=0.0, ge=0)
    """One frame and the name of what it shows: a few tokens, to learn seeing at a fraction of the cost."""
    reading: float = Field(default=0.0, ge=0)
    """A question, its evidence as text and the answer: to learn reading at a fraction of the cost."""
    perception: float = Field(default=0.4, ge=0)
    parallel: float = Field(default=0.3, ge=0)
    sequential: float = Field(default=0.1, ge=0)
    overview: float = Field(default=0.1, ge=0)
    reasoning: float = Field(default=0.05, ge=0)
    direct: float = Field(default=0.05, ge=0)
    frames: float = Field(default=0.2, ge=0, le=1)
    """The share of sequential traces whose calls return frames."""
    tool_code: float = Field(default=0.0, ge=0, le=1)
    """The share of traces with calls that use the competing `<tool_code>` syntax: a pretrained habit, to be studied."""
    budgets: list[Literal[4, 8, 16, 32, 64]] = Field(default=[4, 8, 16, 32, 64], min_length=1)
    """Overview frame budgets to draw from uniformly; one that is listed twice is drawn twice as often."""


class Phase(FrozenModel):
    """A range of steps with its own learning rate, warm-up, decay and mix of data."""

    name: str = "all"
    steps: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    """The peak, after warm-up."""
    vision_rate: float = Field(default=1.0, ge=0)
    """The vision tower's learning rate relative to the others'."""
    warmup: float = Field(default=0.05, ge=0, lt=1)
    """The share of steps in which the rate rises from 0."""
    final: float = Field(default=0.0, ge=0, le=1)
    """The rate at the end of the cosine, relative to the peak."""
    batch: int | None = Field(default=None, ge=1)
    """Samples per step over all processes; by default the recipe's `batch`."""
    mix: TraceMix = TraceMix()
    """Ignored unless the data is the sample world."""


class CheckpointConfig(FrozenModel):
    every: int = Field(default=100, ge=1)
    """Steps between checkpoints; the last step always gets one."""
    keep: int = Field(default=2, ge=1)
    """Number of newest checkpoints to keep."""
    keep_every: int = Field(default=0, ge=0)
    """Also keep the checkpoints of every Nth step; 0 for none."""


class HeldOutConfig(FrozenModel):
    """A small measure during training: turns predicted exactly right, each token given the right ones before it."""

    every: int = Field(default=0, ge=0)
    """Steps between measures; 0 for never."""
    traces: int = Field(default=96, ge=1)
    """Number of traces."""
    seed: int = 77
    """Seed of the sample world; must differ from the data's."""
    mix: TraceMix = TraceMix()


class RunRecipe(FrozenModel):
    """The keys of all recipes."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    out: str
    """The folder of the run: metrics, checkpoints, the exported model."""
    seed: int = 0
    """Seed of everything that a run draws, and of random weights."""
    model: ModelConfig = ModelConfig()
    data: Annotated[WorldData | ParquetData, Field(discriminator="kind")]
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float = Field(default=1.0, gt=0)
    """Maximum gradient norm."""
    betas: tuple[float, float] = (0.9, 0.999)
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """What layers compute in; `auto` is bf16 on a GPU and fp32 on a CPU. Weights are kept in fp32."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""
    threads: int = Field(default=0, ge=0)
    """CPU threads per process; 0 leaves it to torch."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    export_dtype: Literal["bf16", "fp32"] = "bf16"
    """Number format of the exported model."""


class SftRecipe(RunRecipe):
    """One run of supervised fine-tuning."""

    phases: list[Phase] = Field(min_length=1)
    batch: int = Field(default=32, ge=1)
    """Samples per step over all processes."""
    row_tokens: int = Field(default=4096, ge=64)
    """Maximum tokens per packed row; one row is one forward pass."""
    loaders: int = Field(default=1, ge=0)
    """Processes that prepare data ahead; 0 prepares it in the training process."""
    held_out: HeldOutConfig = HeldOutConfig()

    @model_validator(mode="after")
    def _consistent(self) -> "SftRecipe":
        if isinstance(self.data, WorldData):
            if self.held_out.every and self.held_out.seed == self.data.seed:
                raise ValueError("held_out.seed must differ from data.seed, or nothing is held out")
            for phase in self.phases:
                _check_weights(phase.mix, f"phases, {phase.name}")
            _check_weights(self.held_out.mix, "held_out")
        elif self.held_out.every:
            raise ValueError("held_out.every must be 0 if data.kind is parquet: its traces are the sample world's")
        elif self.model.start == MINI:
            raise ValueError("model.start must be a checkpoint if data.kind is parquet: mini knows few words")
        return self

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def phase_at(self, step: int) -> tuple[Phase, int]:
        """The phase of step `step` (from 0), and the step's index in it."""
        for phase in self.phases:
            if step < phase.steps:
                return phase, step
            step -= phase.steps
        raise IndexError(step)

    def batch_at(self, step: int) -> int:
        """Samples of step `step`, over all processes."""
        return self.phase_at(step)[0].batch or self.batch


def _check_weights(mix: TraceMix, where: str) -> None:
    names = ("caption", "reading", "perception", "parallel", "sequential", "overview", "reasoning", "direct")
    if not any(getattr(mix, name) for name in names):
        raise ValueError(f"{where}: all weights of mix are 0; one of {', '.join(names)} must be above 0")


def load_recipe(file: str | Path, changes: Iterable[str] = ()) -> SftRecipe:
    """Load the SFT recipe of a YAML file, or the bundled one of that name, and apply `changes`.

    Args:
        changes: `key=value`, with dotted keys (`phases.0.steps=100`) and YAML values.

    Raises:
        SettingsError: one line that names the file, the key and what is allowed.
    """
    return read_recipe(file, changes, SftRecipe, "*_sft.yaml")


def read_recipe(file: str | Path, changes: Iterable[str], kind: type[R], pattern: str) -> R:
    """As `load_recipe`, for a recipe of any kind.

    Args:
        pattern: matches the bundled recipes of this kind.
    """
    path = _find(file, pattern)
    values = _read(path, pattern)
    for change in changes:
        _apply(values, change)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{path}: {_message(error, kind)}") from None


def _find(file: str | Path, pattern: str, folder: Path = Path()) -> Path:
    """The recipe of a path relative to `folder`, or of a name."""
    for path in (folder / file, FOLDER / f"{file}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in FOLDER.glob(pattern)))
    raise SettingsError(f"{file}: no such recipe; name a YAML file or one of {known}")


def _read(path: Path, pattern: str, modified_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file's keys merged into those of its base; `modified_by` are the recipes that it is a base of."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: not a YAML file ({' '.join(str(error).split())[:160]})") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: not a recipe; it must be a mapping of keys to values")
    base = values.pop("base", None)
    if base is None:
        return values
    try:
        base_path = _find(str(base), pattern, path.parent)
    except SettingsError as error:
        raise SettingsError(f"{path}: recipe base: {error}") from None
    if base_path.resolve() in (path.resolve(), *modified_by):
        raise SettingsError(f"{path}: recipe base: {base} is itself based on this recipe; choose another")
    return _merge(_read(base_path, pattern, (path.resolve(), *modified_by)), values)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = base | changes
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = _merge(base[key], value)
    return merged


def _message(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first problem in one line, with its dotted key."""
    first = error.errors()[0]
    keys = [str(key) for key in first["loc"] if key not in _DATA]
    if first["type"] == "extra_forbidden":
        return f"unknown key {'.'.join(keys)!r}{suggestion(keys[-1], _known_keys(first['loc'], kind))}"
    if first["type"].startswith("union_tag"):
        value = f", not {first['ctx']['tag']!r}" if "tag" in first.get("ctx", {}) else ", but is missing"
        return f"recipe {'.'.join(keys)}.kind: must be 'world' or 'parquet'{value}"
    message = validation_message(error, "recipe")
    return message.replace("data.world.", "data.").replace("data.parquet.", "data.")  # kinds, not keys


_DATA = {"world": WorldData, "parquet": ParquetData}


def _known_keys(location: Sequence[int | str], kind: type[BaseModel]) -> list[str]:
    """The keys that are allowed where the last key of `location` is."""
    part: Any = kind
    for key in location[:-1]:
        if key in _DATA:
            part = _DATA[key]
        elif isinstance(key, str):
            annotation = part.model_fields[key].annotation
            # Of a list or an optional key, the type of its items.
            models = [item for item in get_args(annotation) if isinstance(item, type) and issubclass(item, BaseModel)]
            part = models[0] if models else annotation
    return list(part.model_fields)


def _apply(values: Any, change: str) -> None:
    """Apply one `key=value` change in place."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise SettingsError(f"--set {change}: must be key=value, such as phases.0.steps=100")
    *path, last = key.split(".")
    try:
        for name in path:
            values = values[int(name)] if isinstance(values, list) else values.setdefault(name, {})
        values[int(last) if isinstance(values, list) else last] = yaml.safe_load(text)
    except (ValueError, IndexError, TypeError, AttributeError):
        raise SettingsError(f"--set {change}: the recipe has no key {key}") from None
    except yaml.YAMLError:
        raise SettingsError(f"--set {change}: {text!r} is not a YAML value") from None
