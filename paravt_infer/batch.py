"""A file of questions in, a file of rollouts out: each row once, whatever stops it on the way."""

import csv
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from paravt_infer.agent import Engine
from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout, from_json, load, save, to_json
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
        model = engine.backend.model
        done = self._finished(model)
        for rollout in done.values():
            yield rollout
        open_questions = [question for question in self.questions if self._key(question, model) not in done]
        self.out.parent.mkdir(parents=True, exist_ok=True)
        episodes = engine.ask_many(open_questions, concurrency=concurrency, settings=self.settings)
        # Leaving early cancels what is under way at once.
        async with aclosing(episodes):
            with self.journal.open("ab") as journal:
                async for rollout in episodes:
                    journal.write(to_json(rollout).encode() + b"\n")
                    journal.flush()
                    os.fsync(journal.fileno())
                    done[self._key(rollout.question, model)] = rollout
                    yield rollout
        save([done[self._key(question, model)] for question in self.questions], self.out)
        self.journal.unlink()

    def _finished(self, model: str) -> dict[str, Rollout]:
        """Rollouts of an earlier run, by key; failed ones are not finished."""
        wanted = {self._key(question, model) for question in self.questions}
        earlier = list(load(self.out)) if self.out.is_file() else []
        if self.journal.is_file():
            lines = self.journal.read_bytes().split(b"\n")
            # The last piece is empty, or a line that was cut when the run was killed: it is taken off.
            if lines.pop():
                self.journal.write_bytes(b"".join(line + b"\n" for line in lines))
            earlier += [from_json(line, where=str(self.journal)) for line in lines]
        keyed = {self._key(r.question, r.backend.model, r.settings): r for r in earlier if r.status != "failed"}
        return {key: rollout for key, rollout in keyed.items() if key in wanted}

    def _key(self, question: Question, model: str, settings: Settings | None = None) -> str:
        """Names everything that decides an answer."""
        parts = [question.model_dump(), model, (settings or self.settings).model_dump()]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


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
