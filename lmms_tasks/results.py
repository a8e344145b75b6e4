"""A benchmark's question with its gold answer, and the episode that answered it: what scorers, A/B and reports use."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from paravt_infer.errors import SettingsError, first_line
from paravt_infer.files import atomic_path
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout, rollout_from_json, rollout_to_json
from paravt_infer.schema import FrozenModel, validation_message

_SCHEMA = pa.schema(
    dict.fromkeys(("task", "id", "gold", "answer", "status", "error"), pa.string())
    | dict.fromkeys(("calls", "prompt_tokens", "output_tokens"), pa.int64())
    | {"seconds": pa.float64(), "item": pa.string(), "rollout": pa.string()}
)
"""Columns of a file of results: plain ones to read, and both records as JSON."""


class EvalItem(FrozenModel):
    """One question of a benchmark, with its gold answer."""

    task: str
    """The lmms-eval task it belongs to, such as `paravt_videomme`."""
    question: Question
    """As the engine takes it; its `id` is the benchmark's own and unique within the task."""
    gold: str
    """The right option's letter; a text; or `[start, end]` in seconds, for grounding."""
    groups: dict[str, str] = {}
    """What breakdowns go by, such as {"duration": "short", "domain": "Knowledge"}."""


class EvalResult(FrozenModel):
    """An item and the episode that answered it, or failed to."""

    item: EvalItem
    rollout: Rollout

    @property
    def failed(self) -> bool:
        """Whether the episode failed: then there is nothing to score. No answer, in contrast, is a wrong one."""
        return self.rollout.status not in ("answered", "no_answer")

    @property
    def key(self) -> tuple[str, str]:
        """Task and question id."""
        return self.item.task, self.item.question.id

    @property
    def answer_text(self) -> str | None:
        """The answer as text; None where there is none."""
        return self.rollout.answer_text or self.rollout.answer


def save_results(results: Iterable[EvalResult], path: Path) -> None:
    """Write results as Parquet, atomically. Raises SettingsError where the file cannot be written."""
    rows = [
        {
            **{"task": result.item.task, "id": result.item.question.id, "gold": result.item.gold},
            **result.rollout.model_dump(include={"answer", "status", "error"}),
            **result.rollout.usage.model_dump(),
            **{"item": result.item.model_dump_json(), "rollout": rollout_to_json(result.rollout)},
        }
        for result in results
    ]
    write_parquet(pa.Table.from_pylist(rows, schema=_SCHEMA), path)


def write_parquet(table: Any, path: Path) -> None:
    """Write a pyarrow table atomically. Raises SettingsError where it cannot be written."""
    with atomic_path(path) as scratch:
        pq.write_table(table, scratch, compression="zstd")


def load_results(path: Path) -> Iterator[EvalResult]:
    """The results in a file that `save_results` wrote, or in all files of a folder (`*.parquet`, by name).

    Raises:
        SettingsError: no such file, or not one of results; names it.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise SettingsError(f"{path}: no results found; give a folder that `paravt eval` wrote")
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                if not {"item", "rollout"} <= set(opened.schema_arrow.names):
                    raise SettingsError(f"{file}: not a file of results (it has no columns item and rollout)")
                number = 0
                for batch in opened.iter_batches(batch_size=64, columns=["item", "rollout"]):
                    for item, rollout in zip(*(batch.column(i).to_pylist() for i in (0, 1)), strict=True):
                        number += 1
                        yield _result_from_json(item, rollout, where=f"{file}, row {number}")
        except (pa.ArrowException, OSError) as error:
            raise SettingsError(f"{file}: not a file of results ({first_line(error)})") from None


def _result_from_json(item: str, rollout: str, *, where: str) -> EvalResult:
    try:
        return EvalResult(item=EvalItem.model_validate_json(item), rollout=rollout_from_json(rollout, where=where))
    except ValidationError as error:
        raise SettingsError(f"{where}: not a saved item ({validation_message(error, 'field')})") from None


def group_by_task(results: Iterable[EvalResult]) -> dict[str, list[EvalResult]]:
    """Results by task, tasks and results in their order."""
    tasks: dict[str, list[EvalResult]] = {}
    for result in results:
        tasks.setdefault(result.item.task, []).append(result)
    return tasks


def index_by_question(results: Iterable[EvalResult], *, where: str) -> dict[tuple[str, str], EvalResult]:
    """Results by task and question id. Raises SettingsError, which names `where`, for a question that occurs twice."""
    indexed: dict[tuple[str, str], EvalResult] = {}
    for result in results:
        if result.key in indexed:
            task, question = result.key
            raise SettingsError(f"{where}: question {question!r} of {task} occurs twice; give the results of one run")
        indexed[result.key] = result
    return indexed
