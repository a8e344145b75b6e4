"""A file of questions in, a file of rollouts out: each row once, whatever stops it on the way."""

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
    """The questions of a file, and which of them are answered already.

    Args:
        source: `.parquet`, `.jsonl` or `.csv` with columns `video` and `question`, and where wanted `id`,
            `options` (a list, or letter to text; in CSV as JSON, or parted by `|`), `subtitles` and `kind`.
            Further columns are left alone. Paths may be relative to the file's folder.
        out: `.parquet` or `.jsonl`, written whole at the end, rows in the source's order.
        settings: a changed setting never reuses an old answer.

    Every finished episode is appended to `OUT.journal` and synced at once. Killed at any moment and run again,
    nothing is lost and nothing is asked twice; rows that failed are asked again.

    Raises:
        SettingsError: the file or a row of it cannot be used; names the row.
    """

    def __init__(self, source: Path, out: Path, settings: Settings):
        if out.suffix not in (".parquet", ".jsonl"):
            raise SettingsError(f"{out}: results are written as .parquet or .jsonl")
        self.source, self.out, self.settings = source, out, settings
        self.journal = out.with_name(out.name + ".journal")
        self.questions = [_question(row, number, source) for number, row in enumerate(_rows(source), 1)]
        if not self.questions:
            raise SettingsError(f"{source}: holds no question")

    async def run(self, engine: Engine, *, concurrency: int = 8) -> AsyncGenerator[Rollout, None]:
        """All rollouts: those already there first, the others as they finish; then `out` is written."""
        earlier = load_rollouts(self.out) if self.out.is_file() else ()
        asked = ResumableRun(engine, self.questions, Journal(self.journal), settings=self.settings, earlier=earlier)
        async with aclosing(asked.run(concurrency=concurrency)) as rollouts:
            async for rollout in rollouts:
                yield rollout
        save_rollouts(asked.rollouts(), self.out)
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
        raise SettingsError(f"{source}: questions are read from .parquet, .jsonl or .csv")


def _question(row: dict[str, Any], number: int, source: Path) -> Question:
    given = {name: row[name] for name in COLUMNS if row.get(name) not in (None, "")}
    for name in ("video", "question"):
        if name not in given:
            raise SettingsError(f"{source}, row {number}: has no {name}; every row needs a video and a question")
    if isinstance(given.get("options"), str):
        given["options"] = _options(given["options"])
    if isinstance(given.get("options"), dict):  # Parquet gives every letter of the file to every row
        given["options"] = {letter: text for letter, text in given["options"].items() if text is not None}
    for name in ("video", "subtitles"):
        if name in given and not Path(str(given[name])).exists() and (source.parent / str(given[name])).exists():
            given[name] = str(source.parent / str(given[name]))
    values = {"id": str(number), "text": given.pop("question"), **given}
    values["id"] = str(values["id"])
    try:
        return Question.make(**values)
    except SettingsError as error:
        raise SettingsError(f"{source}, row {number}: {error}") from None


def _options(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return [part.strip() for part in text.split("|")]
