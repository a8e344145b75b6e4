"""Batch inference: a file of questions in, a file of rollouts out, resumable at any point."""

import csv
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from paravt_infer.engine import Engine
from paravt_infer.errors import SettingsError
from paravt_infer.journal import Journal, ResumableRun
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_infer.rollout_files import load_rollouts, save_rollouts
from paravt_infer.settings import Settings

COLUMNS = ("id", "video", "question", "options", "subtitles", "kind")


class Batch:
    """The questions of a file, and the file of their rollouts.

    Args:
        source: `.parquet`, `.jsonl` or `.csv` with the columns `video` and `question`, and optionally `id`, `options`
            (a list, or letter to text; in CSV as JSON, or separated by `|`), `subtitles` and `kind`. Other columns are
            ignored. Paths may be relative to the file's folder.
        out: `.parquet` or `.jsonl`, written atomically at the end, in the order of the source.
        settings: answers made with other settings are not reused.

    Each finished episode is appended to `OUT.journal` and synced to disk. A run that was killed can be run again:
    nothing is lost and nothing is asked twice. Failed rows are asked again.

    Raises:
        SettingsError: the file, or a row of it, is invalid; names the row.
    """

    def __init__(self, source: Path, out: Path, settings: Settings):
        if out.suffix not in (".parquet", ".jsonl"):
            raise SettingsError(f"{out}: rollouts are written as .parquet or .jsonl; change the suffix")
        self.source, self.out, self.settings = source, out, settings
        self.journal = out.with_name(out.name + ".journal")
        self.questions = [_parse_row(row, number, source) for number, row in enumerate(_rows(source), 1)]
        if not self.questions:
            raise SettingsError(f"{source}: has no questions")

    async def run(self, engine: Engine, *, concurrency: int = 8) -> AsyncGenerator[Rollout, None]:
        """Yield all rollouts, finished ones first, the others as they finish; then write `out`."""
        earlier = load_rollouts(self.out) if self.out.is_file() else ()
        run = ResumableRun(engine, self.questions, Journal(self.journal), settings=self.settings, earlier=earlier)
        async with aclosing(run.run(concurrency=concurrency)) as rollouts:
            async for rollout in rollouts:
                yield rollout
        save_rollouts(run.rollouts(), self.out)
        self.journal.unlink(missing_ok=True)


def _rows(source: Path) -> Iterator[dict[str, Any]]:
    if not source.is_file():
        raise SettingsError(f"{source}: no such file; check the path")
    if source.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            for batch in pq.ParquetFile(source).iter_batches():
                yield from batch.to_pylist()
        except pa.ArrowInvalid as error:
            raise SettingsError(f"{source}: not a Parquet file ({error})") from None
    elif source.suffix == ".jsonl":
        for number, line in enumerate(source.read_text(encoding="utf-8").split("\n"), 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise SettingsError(f"{source}, line {number}: not JSON ({error})") from None
                if not isinstance(row, dict):
                    raise SettingsError(f"{source}, line {number}: not a JSON object")
                yield row
    elif source.suffix == ".csv":
        with source.open(newline="", encoding="utf-8-sig") as file:
            yield from csv.DictReader(file)
    else:
        raise SettingsError(f"{source}: questions are read from .parquet, .jsonl or .csv; change the format")


def _parse_row(row: dict[str, Any], number: int, source: Path) -> Question:
    values = {name: row[name] for name in COLUMNS if row.get(name) not in (None, "")}
    for name in ("video", "question"):
        if name not in values:
            raise SettingsError(f"{source}, row {number}: has no {name}; every row needs a video and a question")
    if isinstance(values.get("options"), str):
        values["options"] = _parse_options(values["options"])
    if isinstance(values.get("options"), dict):  # in Parquet, every row has every letter of the column
        values["options"] = {letter: text for letter, text in values["options"].items() if text is not None}
    for name in ("video", "subtitles"):
        if name in values and not Path(str(values[name])).exists() and (source.parent / str(values[name])).exists():
            values[name] = str(source.parent / str(values[name]))
    values["id"], values["text"] = str(values.get("id", number)), values.pop("question")
    try:
        return Question.make(**values)
    except SettingsError as error:
        raise SettingsError(f"{source}, row {number}: {error}") from None


def _parse_options(text: str) -> Any:
    """Options from a CSV cell."""
    try:
        return json.loads(text)
    except ValueError:
        return [part.strip() for part in text.split("|")]
