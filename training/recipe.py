"""Recipes: everything that a training run is made from, checked before anything is loaded.

A recipe is a YAML file in `training/recipes` or anywhere else. Its key `base` names a recipe that it changes: keys are
laid over that one's, mappings key by key. A key that there is not, or a value that does not fit, is one line that names
the key and what is allowed.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from paravt_infer import bundled
from paravt_infer.errors import SettingsError
from paravt_infer.schema import validation_message

FOLDER = Path(__file__).parent / "recipes"
R = TypeVar("R", bound=BaseModel)
MINI = "mini"
"""The name of the model that is made anew, in place of a folder or a hub id."""


class ConfigModel(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)


class MiniShape(ConfigModel):
    """The sizes of the small model that a run from `mini` begins with."""

    layers: int = Field(default=4, ge=1)
    hidden: int = Field(default=128, ge=16, multiple_of=16)
    intermediate: int = Field(default=384, ge=16)
    heads: int = Field(default=4, ge=1)
    kv_heads: int = Field(default=2, ge=1)
    head_dim: int = Field(default=32, ge=16, multiple_of=16)
    vision_layers: int = Field(default=2, ge=1)
    """Each layer's features go to a text layer (deepstack)."""
    vision_hidden: int = Field(default=128, ge=16, multiple_of=16)
    vision_intermediate: int = Field(default=256, ge=16)
    vision_heads: int = Field(default=4, ge=1)
    merge: Literal[1, 2, 4] = 2
    """A visual token is made of so many patches, of 16 pixels, down and across."""
    vocabulary: int = Field(default=1000, ge=300)
    """At most so many tokens before tags and special ones are added."""


class ModelConfig(ConfigModel):
    """What is trained."""

    start: str = MINI
    """`mini`, `bundled` (the checkpoint that ships), or the folder or hub id of a Qwen3-VL checkpoint."""
    mini: MiniShape = MiniShape()
    """Of account where `start` is `mini`."""

    @field_validator("start")
    @classmethod
    def _where_it_ships(cls, start: str) -> str:
        return str(bundled.checkpoint_path()) if start == "bundled" else start


class WorldData(ConfigModel):
    """The sample world, without end, from a seed. Frames are drawn, no file is read."""

    kind: Literal["world"]
    seed: int = 0
    frame: int = Field(default=64, ge=32, multiple_of=32)
    """Frames are drawn so many pixels wide and high; a `mini` model takes no others."""
    noise: float = Field(default=6.0, ge=0)
    """At most so much Gaussian noise a pixel (standard deviation, of 255)."""
    brightness: float = Field(default=0.06, ge=0, lt=1)
    """Frames are made lighter or darker by at most this part."""
    compressed: float = Field(default=0.6, ge=0, le=1)
    """The part of the traces whose frames have a coarse picture codec's faults."""


class ParquetData(ConfigModel):
    """Parquet files of conversations: `messages` as a JSON string, videos as parts of them."""

    kind: Literal["parquet"]
    files: list[str] = Field(min_length=1)
    """Paths; * and ** stand for any names."""
    videos: str | None = None
    """The folder that the rows' video paths start from; by default that of their Parquet file."""
    prefixes: dict[str, str] = {}
    """Folders of what stands after a path's beginning, such as `selfqa/`, where it has one of its own."""
    fps: float = Field(default=1.0, gt=0)
    frames: int = Field(default=64, ge=1)
    """A video part has at most so many frames, unless it says how many."""
    min_pixels: int = Field(default=784, ge=1)
    max_pixels: int = Field(default=50176, ge=1)
    seed: int = 0
    """Of the order in which rows are visited; another one each epoch."""


class TraceMix(ConfigModel):
    """Weights of the sample world's kinds of trace (`paravt_training.world.stream`), and of shorter conversations."""

    caption: float = Field(default=0.0, ge=0)
    """One frame and the name of what it shows: a few tokens, so that seeing is learned at a fraction of the cost."""
    reading: float = Field(default=0.0, ge=0)
    """A question, its evidence in words and the answer: so that reading is learned at a fraction of the cost."""
    perception: float = Field(default=0.4, ge=0)
    parallel: float = Field(default=0.3, ge=0)
    sequential: float = Field(default=0.1, ge=0)
    overview: float = Field(default=0.1, ge=0)
    reasoning: float = Field(default=0.05, ge=0)
    direct: float = Field(default=0.05, ge=0)
    frames: float = Field(default=0.2, ge=0, le=1)
    """The part of the sequential traces whose calls return frames."""
    tool_code: float = Field(default=0.0, ge=0, le=1)
    """The part of the traces with calls in the competing `<tool_code>` form: a pretrained habit, to be studied."""
    budgets: list[Literal[4, 8, 16, 32, 64]] = Field(default=[4, 8, 16, 32, 64], min_length=1)
    """Frames an overview may have, drawn evenly; one named twice is drawn twice as often."""


class Phase(ConfigModel):
    """A stretch of steps with one learning rate, its own warm-up and decay, and one mix of data."""

    name: str = "all"
    steps: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    """At its highest, after the warm-up."""
    vision_rate: float = Field(default=1.0, ge=0)
    """The vision tower's learning rate as a part of the others'."""
    warmup: float = Field(default=0.05, ge=0, lt=1)
    """The part of the steps in which the rate rises from 0."""
    final: float = Field(default=0.0, ge=0, le=1)
    """The part of the rate that the cosine ends at."""
    batch: int | None = Field(default=None, ge=1)
    """Samples a step, over all processes; the recipe's `batch` by default."""
    mix: TraceMix = TraceMix()
    """Of account for the sample world."""


class CheckpointConfig(ConfigModel):
    every: int = Field(default=100, ge=1)
    """Steps from one checkpoint to the next; the last step always has one."""
    keep: int = Field(default=2, ge=1)
    """The newest so many stay."""
    keep_every: int = Field(default=0, ge=0)
    """Those of every so many steps stay too; 0 for none."""


class HeldOutConfig(ConfigModel):
    """A small measure while training: what would be said exactly right, each token given the right ones before it."""

    every: int = Field(default=0, ge=0)
    """Steps from one to the next; 0 for never."""
    traces: int = Field(default=96, ge=1)
    """How many."""
    seed: int = 77
    """Of the sample world; another than the data's."""
    mix: TraceMix = TraceMix()


class RunRecipe(ConfigModel):
    """What recipes of all kinds have."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    out: str
    """The folder of the run: metrics, checkpoints, the exported model."""
    seed: int = 0
    """Of all that a run draws, and of the weights that it makes anew."""
    model: ModelConfig = ModelConfig()
    data: Annotated[WorldData | ParquetData, Field(discriminator="kind")]
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float = Field(default=1.0, gt=0)
    """The gradient's norm is cut to this."""
    betas: tuple[float, float] = (0.9, 0.999)
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """What layers compute in; `auto` is bf16 on a GPU and fp32 on a CPU. Weights are kept in fp32."""
    gradient_checkpointing: bool = False
    """Compute a layer's inner values again in the backward pass, to save memory."""
    threads: int = Field(default=0, ge=0)
    """CPU threads of each process; 0 leaves it to torch."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    export_dtype: Literal["bf16", "fp32"] = "bf16"
    """Of the exported model."""


class SftRecipe(RunRecipe):
    """One run of supervised fine-tuning."""

    phases: list[Phase] = Field(min_length=1)
    batch: int = Field(default=32, ge=1)
    """Samples a step, over all processes."""
    row_tokens: int = Field(default=4096, ge=64)
    """Samples are packed into rows of at most so many tokens; one row is one forward pass."""
    loaders: int = Field(default=1, ge=0)
    """Processes that make data ahead; 0 makes it in the trainer."""
    held_out: HeldOutConfig = HeldOutConfig()

    @model_validator(mode="after")
    def _fits(self) -> "SftRecipe":
        if isinstance(self.data, WorldData):
            if self.held_out.every and self.held_out.seed == self.data.seed:
                raise ValueError("held_out.seed must be another than data.seed, or nothing is held out")
            for phase in self.phases:
                _weighed(phase.mix, f"phases, {phase.name}")
            _weighed(self.held_out.mix, "held_out")
        elif self.held_out.every:
            raise ValueError("held_out.every must be 0 where data.kind is parquet: its traces are the sample world's")
        elif self.model.start == MINI:
            raise ValueError("model.start must be a checkpoint where data.kind is parquet: mini knows few words")
        return self

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def phase_at(self, step: int) -> tuple[Phase, int]:
        """The phase of step number `step` (from 0), and the step's number in it."""
        for phase in self.phases:
            if step < phase.steps:
                return phase, step
            step -= phase.steps
        raise IndexError(step)

    def batch_at(self, step: int) -> int:
        """Samples of step `step`, over all processes."""
        return self.phase_at(step)[0].batch or self.batch


def _weighed(mix: TraceMix, where: str) -> None:
    names = ("caption", "reading", "perception", "parallel", "sequential", "overview", "reasoning", "direct")
    if not any(getattr(mix, name) for name in names):
        raise ValueError(f"{where}: mix has only zeros; one of {', '.join(names)} must be above 0")


def load_recipe(file: str | Path, changes: Iterable[str] = ()) -> SftRecipe:
    """The SFT recipe of a YAML file, or of that name in `training/recipes`, with `changes` made to it.

    Args:
        changes: `key=value`, keys with dots (`phases.0.steps=100`), values as YAML.

    Raises:
        SettingsError: one line that names the file, the key and what is allowed.
    """
    return read_recipe(file, changes, SftRecipe, "*_sft.yaml")


def read_recipe(file: str | Path, changes: Iterable[str], kind: type[R], pattern: str) -> R:
    """A recipe of any kind.

    Args:
        pattern: which files in `training/recipes` are of this kind.

    Raises:
        SettingsError: one line that names the file, the key and what is allowed.
    """
    path = _find(file, pattern)
    values = _keys(path, pattern)
    for change in changes:
        _set(values, change)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{path}: {_fault(error, kind)}") from None


def _find(file: str | Path, pattern: str, start: Path = Path()) -> Path:
    """The file of a path from `start`, or of a name in `training/recipes`."""
    for path in (start / file, FOLDER / f"{file}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(one.stem for one in FOLDER.glob(pattern)))
    raise SettingsError(f"{file}: no such recipe; name a YAML file or one of {known}")


def _keys(path: Path, pattern: str, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file's keys, laid over those of its base; `above` are the recipes that change it."""
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
        below = _find(str(base), pattern, path.parent)
    except SettingsError as error:
        raise SettingsError(f"{path}: recipe base: {error}") from None
    if below.resolve() in (path.resolve(), *above):
        raise SettingsError(f"{path}: recipe base: {base} is itself made from this recipe; name another")
    return _laid_over(_keys(below, pattern, (path.resolve(), *above)), values)


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {key for key in above if isinstance(above[key], dict) and isinstance(below.get(key), dict)}
    return {**below, **above, **{key: _laid_over(below[key], above[key]) for key in both}}


def _fault(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first fault, its key with dots, and the keys there are where it is none of them."""
    fault = error.errors()[0]
    keys = [str(part) for part in fault["loc"] if part not in ("world", "parquet")]
    if fault["type"] == "extra_forbidden":
        known = _known(fault["loc"], kind)
        near = get_close_matches(keys[-1], known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"recipe {'.'.join(keys)}: there is no such key{meant} (allowed: {', '.join(known)})"
    if fault["type"] == "union_tag_invalid":
        return f"recipe {'.'.join(keys)}.kind: must be 'world' or 'parquet', not {fault['ctx']['tag']!r}"
    if fault["type"] == "union_tag_not_found":
        return f"recipe {'.'.join(keys)}.kind: is missing; 'world' or 'parquet'"
    if fault["type"] == "value_error":
        return f"recipe {'.'.join([*keys, ''])[:-1]}: {fault['ctx']['error']}".replace("recipe :", "recipe:")
    return validation_message(error, "recipe")


def _known(place: Sequence[int | str], kind: type[BaseModel]) -> list[str]:
    """The keys of the part that the last of `place` is in."""
    part: Any = kind
    for key in place[:-1]:
        if key in ("world", "parquet"):
            part = WorldData if key == "world" else ParquetData
        elif isinstance(key, str):
            annotation = part.model_fields[key].annotation
            # A list's or an option's own type is what its parts are.
            inside = [one for one in get_args(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
            part = inside[0] if inside else annotation
    return list(part.model_fields)


def _set(values: Any, change: str) -> None:
    """Make one `key=value` change."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise SettingsError(f"--set {change}: must be key=value, such as phases.0.steps=100")
    *path, last = key.split(".")
    try:
        for name in path:
            values = values[int(name)] if isinstance(values, list) else values.setdefault(name, {})
        values[int(last) if isinstance(values, list) else last] = yaml.safe_load(text)
    except (ValueError, IndexError, TypeError, AttributeError):
        raise SettingsError(f"--set {change}: the recipe has no place {key}") from None
    except yaml.YAMLError:
        raise SettingsError(f"--set {change}: {text!r} is not a YAML value") from None
