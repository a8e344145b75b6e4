"""A benchmark's question with its right answer, and what came of it: what scorers, A/B and reports work on."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout, rollout_from_json, rollout_to_json
from paravt_infer.schema import validation_message


class Item(BaseModel):
    """One question of a benchmark, with its right answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    task: str
    """The lmms-eval task it belongs to, such as `paravt_videomme`."""
    question: Question
    """As the engine takes it; its `id` is the benchmark's own and names the item in its task."""
    gold: str
    """The right option's letter; a text; or `[start, end]` in seconds, for grounding."""
    groups: dict[str, str] = {}
    """What breakdowns go by, such as {"duration": "short", "domain": "Knowledge"}."""


class EvalResult(BaseModel):
    """An item and the episode that answered it, or failed to."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    item: Item
    rollout: Rollout

    @property
    def failed(self) -> bool:
        """Whether the episode broke: then there is nothing to score. No answer, in contrast, is a wrong one."""
        return self.rollout.status not in ("answered", "no_answer")


def save_rows(rows: Iterable[EvalResult], path: Path) -> None:
    """Write rows as Parquet, whole or not at all: plain columns to look at, and both records as JSON.

    Raises:
        SettingsError: the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(_columns(list(rows)))
    write_whole(path, lambda scratch: pq.write_table(table, scratch, compression="zstd"))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` make the file under another name, then give it `path`'s: whole or not at all.

    Raises:
        SettingsError: it cannot be written.
    """
    scratch = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(scratch)
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise SettingsError(f"{path}: cannot be written ({error.strerror}); name another place") from None


def _columns(rows: list[EvalResult]) -> "dict[str, object]":
    import pyarrow as pa

    def texts(values: Iterable[str | None]) -> object:
        return pa.array(list(values), pa.string())

    return {
        "task": texts(row.item.task for row in rows),
        "id": texts(row.item.question.id for row in rows),
        "gold": texts(row.item.gold for row in rows),
        "answer": texts(row.rollout.answer for row in rows),
        "status": texts(row.rollout.status for row in rows),
        "error": texts(row.rollout.error for row in rows),
        **{
            name: pa.array([getattr(row.rollout.usage, name) for row in rows], pa.int64())
            for name in ("calls", "prompt_tokens", "output_tokens")
        },
        "seconds": pa.array([row.rollout.usage.seconds for row in rows], pa.float64()),
        "item": texts(row.item.model_dump_json() for row in rows),
        "rollout": texts(rollout_to_json(row.rollout) for row in rows),
    }


def load_rows(path: Path) -> Iterator[EvalResult]:
    """The rows of a file that `save_rows` wrote, or of all of them in a folder (`*.parquet`, by name).

    Raises:
        SettingsError: no such file, or not one of rows; names it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise SettingsError(f"{path}: holds no results; name a folder that `paravt eval` wrote")
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                if not {"item", "rollout"} <= set(opened.schema_arrow.names):
                    raise SettingsError(f"{file}: not a file of results (it has no columns item and rollout)")
                number = 0
                for batch in opened.iter_batches(batch_size=64, columns=["item", "rollout"]):
                    for item, rollout in zip(*(batch.column(i).to_pylist() for i in (0, 1)), strict=True):
                        number += 1
                        yield _row(item, rollout, where=f"{file}, row {number}")
        except (pa.ArrowException, OSError) as error:
            raise SettingsError(f"{file}: not a file of results ({str(error).splitlines()[0]})") from None


def _row(item: str, rollout: str, *, where: str) -> EvalResult:
    try:
        return EvalResult(item=Item.model_validate_json(item), rollout=rollout_from_json(rollout, where=where))
    except ValidationError as error:
        raise SettingsError(f"{where}: not a saved item ({validation_message(error, 'field')})") from None
