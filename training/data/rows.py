"""Rows of conversations from Parquet files (paper, appendix "Format and Storage"), read one at a time.

The layout: `messages`, a JSON string of [{role, content}]; `videos`, paths; `extra_info`, the correct answer and the
question type. Besides this project's files, the public ParaVT-Parquet files are read: their message parts have other
names, their RL rows have `prompt` with `<video>` in place of `messages`, and their `extra_info` is a struct or JSON.
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
from paravt_infer.errors import SettingsError, first_line

JsonMessage = dict[str, Any]
"""`role`, and `content`: a text, or a list of {"type": "text", "text"}, {"type": "video", "video"}, perhaps with
"start", "end" and "frames", and {"type": "image", "image"}. `"stopped": true` marks a turn cut at its end."""

ROW_GROUP = 256
"""Rows in memory at once, and per row group of files written."""
KINDS = {"mcq": "choice", "choice": "choice", "tvg": "grounding", "grounding": "grounding"}
"""Question types, here and in the public files, whose answer is not free text."""


class RowError(Exception):
    """What is wrong with a row: a name to count it by, and details."""

    def __init__(self, fault: str, detail: str):
        super().__init__(f"{fault}: {detail}")
        self.fault, self.detail = fault, detail


@dataclass(frozen=True, kw_only=True, slots=True)
class InvalidRow:
    """A row that cannot be used."""

    file: Path
    number: int
    """Its position in the file, from 1."""
    fault: str
    """A name such as `bad_json`."""
    detail: str

    def __str__(self) -> str:
        return f"{self.file}, row {self.number}: {self.fault}: {self.detail}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationRow:
    """One conversation."""

    messages: list[JsonMessage]
    """From the system prompt on; without assistant messages where it is a prompt for RL."""
    videos: list[str]
    """Paths as written in the file."""
    info: dict[str, Any] = field(default_factory=dict)
    """`extra_info`, and the row's other scalar columns."""
    file: Path = Path()
    number: int = 0
    """Its position in the file, from 1."""

    @property
    def source(self) -> str:
        """Its data set: `source` or `data_source`, else the name of its file."""
        return str(self.info.get("source") or self.info.get("data_source") or self.file.stem)

    @property
    def answer(self) -> str:
        """The correct answer; else the answer of the last assistant message; empty where there is none."""
        if self.info.get("answer") is not None:
            return str(self.info["answer"])
        turns = [message for message in self.messages if message["role"] == "assistant"]
        answer = extract_answer(message_text(turns[-1])) if turns else None
        return answer.text if answer else ""

    @property
    def kind(self) -> str:
        """`choice`, `open` or `grounding`."""
        kind = self.info.get("kind") or ("choice" if self.info.get("options") else self.info.get("question_type"))
        return KINDS.get(str(kind), "open")

    def invalid(self, error: RowError) -> InvalidRow:
        return InvalidRow(file=self.file, number=self.number, fault=error.fault, detail=error.detail)


def message_text(message: JsonMessage) -> str:
    """The text parts of a message, joined."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def message_media(message: JsonMessage) -> list[dict[str, Any]]:
    """The video and image parts of a message."""
    content = message["content"]
    return [] if isinstance(content, str) else [part for part in content if part["type"] != "text"]


def read_rows(file: Path, chosen: NDArray[np.bool_] | None = None) -> Iterator[ConversationRow | InvalidRow]:
    """A file's rows in order, those that cannot be read as `InvalidRow`. Memory does not grow with the file.

    Args:
        chosen: whether to read each row; all of them by default.  # [rows]

    Raises:
        SettingsError: the file does not exist or does not contain conversations.
    """
    with open_parquet(file) as parquet:
        columns = [column.name for column in parquet.schema_arrow if column.name in COLUMNS or _is_scalar(column.type)]
        start = 0
        try:
            for batch in parquet.iter_batches(batch_size=ROW_GROUP, columns=columns):
                size, indices = batch.num_rows, np.arange(batch.num_rows)
                if chosen is not None:
                    indices = np.flatnonzero(chosen[start : start + size])
                    batch = batch.take(pa.array(indices))
                for index, values in zip(indices, row_values(batch), strict=True):
                    yield parse_row(values, file, start + int(index) + 1)
                start += size
        except (pa.ArrowException, OSError) as error:
            raise SettingsError(f"{file}: damaged after row {start} ({first_line(error)}); copy it again") from None


def expand_globs(patterns: Sequence[str], where: str, base: Path = Path()) -> list[Path]:
    """The files that match paths with the wildcards `*` and `**`, sorted within each pattern.

    Args:
        where: what named the patterns, for the message.
        base: of relative paths.

    Raises:
        SettingsError: a pattern matches no file.
    """
    found: list[Path] = []
    for pattern in patterns:
        full = base / pattern
        anchor = Path(full.anchor)
        paths = sorted(anchor.glob(str(full.relative_to(anchor)))) if "*" in pattern else [full]
        if not paths or not all(path.is_file() for path in paths):
            raise SettingsError(f"{where}: {full}: no such file; check the path")
        found += paths
    return found


def open_parquet(file: Path) -> pq.ParquetFile:
    """A Parquet file of conversations, to be read in batches.

    Raises:
        SettingsError: the file does not exist or does not contain conversations.
    """
    if not file.is_file():
        raise SettingsError(f"{file}: no such file; check the path")
    try:
        # Without these two options a whole row group is in memory, and a public file may be a single one.
        parquet = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise SettingsError(f"{file}: not a Parquet file ({first_line(error)})") from None
    if not {"messages", "prompt"} & set(parquet.schema_arrow.names):
        parquet.close()
        raise SettingsError(f"{file}: not a Parquet file of conversations (it has no column messages or prompt)")
    return parquet


def count_rows(file: Path) -> int:
    """The number of rows in a file, from its footer."""
    with open_parquet(file) as parquet:
        return int(parquet.metadata.num_rows)


COLUMNS = ("messages", "prompt", "videos", "extra_info")
"""The layout's columns; other columns are read where they are scalar."""


def _is_scalar(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    return any(test(kind) for test in tests)


def row_values(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | None]:
    """The columns of each row; None for a row that is not valid UTF-8."""
    try:
        yield from batch.to_pylist()
        return
    except UnicodeDecodeError:
        pass  # one row makes the whole batch fail: convert them one by one
    for index in range(batch.num_rows):
        try:
            yield batch.slice(index, 1).to_pylist()[0]
        except UnicodeDecodeError:
            yield None


def parse_row(values: dict[str, Any] | None, file: Path, number: int) -> ConversationRow | InvalidRow:
    """A row from the values of its columns; None stands for values that are not valid UTF-8."""
    try:
        if values is None:
            raise RowError("bad_text", "a column is not UTF-8")
        videos = _videos(values.get("videos"))
        name = "messages" if values.get("messages") is not None else "prompt"
        messages = _messages(_json(values.get(name), name), videos)
        info = _json(values.get("extra_info") or {}, "extra_info")
        if not isinstance(info, dict):
            raise RowError("bad_extra_info", f"extra_info is a {type(info).__name__}, not an object")
        others = {name: value for name, value in values.items() if name not in COLUMNS and value is not None}
        media = [part for message in messages for part in message_media(message)]
        mentioned = [part["video"] for part in media if part["type"] == "video"]
        return ConversationRow(
            messages=messages,
            videos=videos or list(dict.fromkeys(mentioned)),
            info=others | {name: value for name, value in info.items() if value is not None},
            file=file,
            number=number,
        )
    except RowError as error:
        return InvalidRow(file=file, number=number, fault=error.fault, detail=error.detail)


def _json(value: Any, column: str) -> Any:
    """A column's value, parsed if it is a JSON string."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowError("bad_json", f"{column} is not JSON ({first_line(error)})") from None


def _videos(value: Any) -> list[str]:
    """Paths, written as such or as the public files' {"video": path}."""
    items = [value] if isinstance(value, str) else value or []
    videos = [item.get("video") if isinstance(item, Mapping) else item for item in items]
    if not all(isinstance(video, str) and video for video in videos):
        raise RowError("bad_videos", "videos has an item that is not a path")
    return [str(video).removeprefix("file://") for video in videos]


def _messages(value: Any, videos: Sequence[str]) -> list[JsonMessage]:
    """Messages in this project's format. Video parts without a path take those of `videos`, in order."""
    if not isinstance(value, list) or not value:
        raise RowError("no_messages", "the row has no list of messages")
    unused = iter(videos)
    messages = []
    for number, message in enumerate(value, 1):
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RowError("bad_message", f"message {number} has no role")
        if isinstance(content, str) and videos and message["role"] == "user" and "<video>" in content:
            content = [piece if piece != "<video>" else {"type": "video"} for piece in re.split("(<video>)", content)]
        if not isinstance(content, (str, list)) and not (content is None and message.get("tool_calls")):
            raise RowError("bad_message", f"message {number} has no content")
        parts = [_part(part, number, unused) for part in ([content] if isinstance(content, str) else content or [])]
        parts += [_part(_call_text(call, number), number, unused) for call in message.get("tool_calls") or []]
        parts = [part for part in parts if part.get("text") != ""]
        plain = all(part["type"] == "text" for part in parts)
        others = {k: v for k, v in message.items() if k not in ("content", "tool_calls") and v is not None}
        messages.append({**others, "content": "".join(part["text"] for part in parts) if plain else parts})
    return messages


def _part(part: Any, number: int, unused: Iterator[str]) -> dict[str, Any]:
    error = partial(RowError, "bad_part")
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise error(f"message {number} has a part without a type")
    kind = part["type"].removesuffix("_url")
    if kind not in ("text", "video", "image"):
        raise error(f"message {number} has a part of type {part['type']!r}; choose from text, video, image")
    value = part.get(part["type"])
    value = value.get("url") if isinstance(value, dict) else value
    if value is None and kind == "video":
        value = next(unused, None)
    if not isinstance(value, str):
        raise error(f"message {number} has a part of type {part['type']!r} without a value")
    others = {k: v for k, v in part.items() if k not in ("type", part["type"]) and v is not None}
    return {"type": kind, kind: value if kind == "text" else value.removeprefix("file://"), **others}


def _call_text(call: Any, number: int) -> str:
    """A structured call as the text that a model writes."""
    function = call.get("function") or call if isinstance(call, dict) else {}
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RowError("bad_message", f"message {number} has a tool call without a name")
    arguments = _json(function.get("arguments"), f"message {number}, arguments of a tool call")
    return f"<tool_call>{json.dumps({'name': function['name'], 'arguments': arguments})}</tool_call>"
