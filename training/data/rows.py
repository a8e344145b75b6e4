"""Rows of conversations from Parquet files (paper, appendix "Format and Storage"), read one at a time.

The layout: `messages`, a JSON string of [{role, content}]; `videos`, paths; `extra_info`, the right answer and the
type of question. Read are this project's files and the public ParaVT-Parquet ones, whose parts are named otherwise,
whose RL rows have `prompt` with `<video>` in place of `messages`, and whose `extra_info` is a struct or a JSON string.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paravt_infer.answers import extract_answer
from paravt_infer.errors import SettingsError

JsonMessage = dict[str, Any]
"""`role`, and `content`: a text, or a list of {"type": "text", "text"}, {"type": "video", "video", and perhaps
"start", "end", "frames"} and {"type": "image", "image"}. `"stopped": true` marks a turn that was cut at its end."""

ROWS_AT_ONCE = 256
"""Rows in memory at once, and in a row group of what is written."""
KINDS = {"mcq": "choice", "choice": "choice", "tvg": "grounding", "grounding": "grounding"}
"""Types of questions, here and in the public files, whose answer is no free text."""


class RowFault(Exception):
    """What is wrong with a row: a name to count it by, and a line about it."""

    def __init__(self, fault: str, detail: str):
        super().__init__(f"{fault}: {detail}")
        self.fault, self.detail = fault, detail


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRow:
    """A row that cannot be used."""

    file: Path
    """Where it stands."""
    number: int
    """Its place in that file, from 1."""
    fault: str
    """What is wrong, by name, such as `bad_json`."""
    detail: str
    """A line about it."""

    def __str__(self) -> str:
        return f"{self.file}, row {self.number}: {self.fault}: {self.detail}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationRow:
    """One conversation."""

    messages: list[JsonMessage]
    """From the system prompt on; without an assistant's where it is a question to train on with rewards."""
    videos: list[str]
    """Paths as they stand in the file."""
    info: dict[str, Any] = field(default_factory=dict)
    """`extra_info`, and the row's other plain columns."""
    file: Path = Path()
    """Where it stands."""
    number: int = 0
    """Its place in that file, from 1."""

    @property
    def source(self) -> str:
        """The data set it is from: `source` or `data_source`, else its file's name."""
        return str(self.info.get("source") or self.info.get("data_source") or self.file.stem)

    @property
    def answer(self) -> str:
        """The right answer; else what the assistant says last; empty where there is none."""
        if self.info.get("answer") is not None:
            return str(self.info["answer"])
        said = [message for message in self.messages if message["role"] == "assistant"]
        reading = extract_answer(text_of(said[-1])) if said else None
        return reading.text if reading else ""

    @property
    def kind(self) -> str:
        """`choice`, `open` or `grounding`."""
        named = self.info.get("kind") or ("choice" if self.info.get("options") else self.info.get("question_type"))
        return KINDS.get(str(named), "open")

    def bad(self, fault: RowFault) -> BadRow:
        return BadRow(file=self.file, number=self.number, fault=fault.fault, detail=fault.detail)


def text_of(message: JsonMessage) -> str:
    """A message's words."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def media_of(message: JsonMessage) -> list[dict[str, Any]]:
    """A message's videos and images, as its parts."""
    content = message["content"]
    return [] if isinstance(content, str) else [part for part in content if part["type"] != "text"]


def read_rows(file: Path, chosen: NDArray[np.bool_] | None = None) -> Iterator[ConversationRow | BadRow]:
    """A file's rows in their order, those that cannot be read as `BadRow`. Memory does not grow with the file.

    Args:
        chosen: which rows to read, of all.  # [rows]

    Raises:
        SettingsError: no such file, or not one of conversations.
    """
    with open_parquet(file) as parquet:
        kept = [one.name for one in parquet.schema_arrow if one.name in _LAYOUT or _is_plain(one.type)]
        start = 0
        try:
            for batch in parquet.iter_batches(batch_size=ROWS_AT_ONCE, columns=kept):
                read, places = batch.num_rows, np.arange(batch.num_rows)
                if chosen is not None:
                    places = np.flatnonzero(chosen[start : start + read])
                    batch = batch.take(pa.array(places))
                for place, values in zip(places, row_values(batch), strict=True):
                    yield parse_row(values, file, start + int(place) + 1)
                start += read
        except (pa.ArrowException, OSError) as error:
            raise SettingsError(f"{file}: damaged after row {start} ({first_line(error)}); get it again") from None


def find_files(patterns: Sequence[str], where: str, start: Path = Path()) -> list[Path]:
    """The files of paths in which * and ** stand for any names, each pattern's in the order of their names.

    Args:
        where: what named them, for the message.
        start: what relative paths start from.

    Raises:
        SettingsError: there is none.
    """
    found: list[Path] = []
    for pattern in patterns:
        whole = start / pattern
        anchor = Path(whole.anchor)
        paths = sorted(anchor.glob(str(whole.relative_to(anchor)))) if "*" in pattern else [whole]
        if not paths or not all(path.is_file() for path in paths):
            raise SettingsError(f"{where}: {whole}: no such file; check the path")
        found += paths
    return found


def open_parquet(file: Path) -> pq.ParquetFile:
    """A Parquet file of conversations, to be read piece by piece.

    Raises:
        SettingsError: no such file, or not one of conversations.
    """
    if not file.is_file():
        raise SettingsError(f"{file}: no such file; check the path")
    try:
        # Without these two a whole row group is in memory, and the public files may be one row group each.
        parquet = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise SettingsError(f"{file}: not a Parquet file ({first_line(error)})") from None
    if not {"messages", "prompt"} & set(parquet.schema_arrow.names):
        parquet.close()
        raise SettingsError(f"{file}: not a Parquet file of conversations (no column is called messages or prompt)")
    return parquet


def count_rows(file: Path) -> int:
    """How many rows a file has, from its footer."""
    with open_parquet(file) as parquet:
        return int(parquet.metadata.num_rows)


_LAYOUT = ("messages", "prompt", "videos", "extra_info")


def _is_plain(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
    )
    return any(test(kind) for test in tests)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def row_values(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | None]:
    """Each row's columns; None for one whose bytes are no text."""
    try:
        yield from batch.to_pylist()
        return
    except UnicodeDecodeError:
        pass  # one row spoils the batch: each alone
    for place in range(batch.num_rows):
        try:
            yield batch.slice(place, 1).to_pylist()[0]
        except UnicodeDecodeError:
            yield None


def parse_row(values: dict[str, Any] | None, file: Path, number: int) -> ConversationRow | BadRow:
    """A row from its columns' values; None for values whose bytes are no text."""
    try:
        if values is None:
            raise RowFault("bad_text", "a column is not UTF-8")
        videos = _videos(values.get("videos"))
        name = "messages" if values.get("messages") is not None else "prompt"
        messages = _messages(_json(values.get(name), name), videos)
        info = _json(values.get("extra_info") or {}, "extra_info")
        if not isinstance(info, dict):
            raise RowFault("bad_extra_info", f"extra_info is a {type(info).__name__}, not an object")
        others = {name: value for name, value in values.items() if name not in _LAYOUT and value is not None}
        named = [part[part["type"]] for message in messages for part in media_of(message) if part["type"] == "video"]
        return ConversationRow(
            messages=messages,
            videos=videos or list(dict.fromkeys(named)),
            info=others | {name: value for name, value in info.items() if value is not None},
            file=file,
            number=number,
        )
    except RowFault as fault:
        return BadRow(file=file, number=number, fault=fault.fault, detail=fault.detail)


def _json(value: Any, column: str) -> Any:
    """A column's value, read where it is a JSON string."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowFault("bad_json", f"{column} is not JSON ({first_line(error)})") from None


def _videos(value: Any) -> list[str]:
    """Paths, given as such or as the public files' {"video": path}."""
    given = [value] if isinstance(value, str) else value or []
    videos = [one.get("video") if isinstance(one, Mapping) else one for one in given]
    if not all(isinstance(video, str) and video for video in videos):
        raise RowFault("bad_videos", "videos holds something that is not a path")
    return [str(video).removeprefix("file://") for video in videos]


def _messages(value: Any, videos: Sequence[str]) -> list[JsonMessage]:
    """Messages in this project's words. Videos that are not named where they stand are `videos`, in their order."""
    if not isinstance(value, list) or not value:
        raise RowFault("no_messages", "the row holds no list of messages")
    waiting = iter(videos)
    messages = []
    for number, one in enumerate(value, 1):
        content = one.get("content") if isinstance(one, dict) else None
        if not isinstance(one, dict) or not isinstance(one.get("role"), str):
            raise RowFault("bad_message", f"message {number} has no role")
        if isinstance(content, str) and videos and one["role"] == "user" and "<video>" in content:
            content = [piece if piece != "<video>" else {"type": "video"} for piece in re.split("(<video>)", content)]
        if not isinstance(content, (str, list)) and not (content is None and one.get("tool_calls")):
            raise RowFault("bad_message", f"message {number} has no content")
        parts = [_part(part, number, waiting) for part in ([content] if isinstance(content, str) else content or [])]
        parts += [_part(_call_text(call, number), number, waiting) for call in one.get("tool_calls") or []]
        parts = [part for part in parts if part.get("text") != ""]
        plain = all(part["type"] == "text" for part in parts)
        others = {key: kept for key, kept in one.items() if key not in ("content", "tool_calls") and kept is not None}
        messages.append({**others, "content": "".join(part["text"] for part in parts) if plain else parts})
    return messages


def _part(part: Any, number: int, waiting: Iterator[str]) -> dict[str, Any]:
    fault = partial(RowFault, "bad_part")
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise fault(f"message {number} has a part without a type")
    kind = part["type"].removesuffix("_url")
    if kind not in ("text", "video", "image"):
        raise fault(f"message {number} has a part of type {part['type']!r}; there are text, video and image")
    value = part.get(part["type"])
    value = value.get("url") if isinstance(value, dict) else value
    if value is None and kind == "video":
        value = next(waiting, None)
    if not isinstance(value, str):
        raise fault(f"message {number} has a part of type {part['type']!r} that names none")
    others = {key: kept for key, kept in part.items() if key not in ("type", part["type"]) and kept is not None}
    return {"type": kind, kind: value if kind == "text" else value.removeprefix("file://"), **others}


def _call_text(call: Any, number: int) -> str:
    """A structured call as a model writes it."""
    function = call.get("function") or call if isinstance(call, dict) else {}
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RowFault("bad_message", f"message {number} has a tool call without a name")
    arguments = _json(function.get("arguments"), f"message {number}, arguments of a tool call")
    return f"<tool_call>{json.dumps({'name': function['name'], 'arguments': arguments})}</tool_call>"
