"""Conversations from Parquet files in the paper's layout, videos decoded as the engine does.

Rows are read by `paravt_training.data.rows`, in any order: each number names a row, so that a run can go on anywhere.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from paravt_infer.chat import Message
from paravt_infer.errors import SettingsError, VideoError
from paravt_infer.protocols import PROTOCOLS, get_protocol
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_infer.video.store import VideoStore
from paravt_infer.video.types import Frame
from paravt_training.data.rows import (
    BadRow,
    ConversationRow,
    JsonMessage,
    find_files,
    first_line,
    open_parquet,
    parse_row,
    row_values,
)
from paravt_training.data.videos import Folders
from paravt_training.model.encode import Conversation
from paravt_training.recipe import ParquetData, TraceMix

_COLUMNS = ("messages", "prompt", "videos", "extra_info")
POOL = 8
"""ConversationRow groups whose rows are shuffled among each other, and the most that are in memory."""


class ParquetSource:
    """Rows of all files, each once an epoch, in an order that the seed and the epoch decide.

    Row groups are visited in a random order, `POOL` of them at a time, whose rows are mixed: so memory does not
    grow with the files.

    Args:
        multiple: frames' sides are multiples of so many pixels.

    Raises:
        SettingsError: no such file, or not one of conversations.
    """

    def __init__(self, data: ParquetData, multiple: int):
        self.data = data
        self.sizing = FrameSizing(multiple=multiple, min_pixels=data.min_pixels, max_pixels=data.max_pixels)
        self.folders = Folders(
            root=Path(data.videos) if data.videos else None,
            by_prefix={prefix: Path(folder) for prefix, folder in data.prefixes.items()},
        )
        self.groups: list[tuple[Path, int, int]] = [
            group for path in find_files(data.files, "recipe data.files") for group in _groups(path)
        ]
        """Files, numbers of row groups in them, and their numbers of rows."""
        self.rows = sum(rows for *_, rows in self.groups)
        if not self.rows:
            raise SettingsError(f"recipe data.files: {', '.join(data.files)} hold no rows")
        self._held: OrderedDict[int, list[dict[str, Any] | None]] = OrderedDict()
        self._decoding: tuple[asyncio.AbstractEventLoop, VideoStore] | None = None

    def conversation(self, number: int, mix: TraceMix) -> Conversation:
        """Conversation `number` of an endless row of epochs; `mix` is of no account.

        Raises:
            SettingsError: the row is not a conversation; names file and row.
            VideoError: its video cannot be read.
        """
        row = self.row(number)
        if isinstance(row, BadRow):
            raise SettingsError(str(row))
        return self._read(row)

    def row(self, number: int) -> ConversationRow | BadRow:
        """The row that number `number` of the endless row of epochs is."""
        group, place = self._place(number)
        return parse_row(self._group(group)[place], self.groups[group][0], self._first_row(group) + place + 1)

    def _place(self, number: int) -> tuple[int, int]:
        """The group and the row in it of conversation `number`."""
        epoch, number = divmod(number, self.rows)
        order, ends = _order(self.data.seed, epoch, tuple(rows for *_, rows in self.groups))
        chunk = bisect_right(ends, number)
        groups = order[chunk * POOL : (chunk + 1) * POOL]
        sizes = [self.groups[group][2] for group in groups]
        before = ends[chunk - 1] if chunk else 0
        row = int(_shuffled(self.data.seed, epoch, chunk, sum(sizes))[number - before])
        for group, size in zip(groups, sizes, strict=True):
            if row < size:
                return group, row
            row -= size
        raise AssertionError("unreachable")

    def _first_row(self, group: int) -> int:
        """The number in its file of a group's first row."""
        path, inside, _ = self.groups[group]
        return sum(rows for other, number, rows in self.groups if other == path and number < inside)

    def _group(self, group: int) -> list[dict[str, Any] | None]:
        if group not in self._held:
            path, inside, _ = self.groups[group]
            try:
                with pq.ParquetFile(path) as file:
                    columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
                    batches = file.read_row_group(inside, columns=columns).to_batches()
            except (pa.ArrowException, OSError) as error:
                told = f"damaged in row group {inside} ({first_line(error)}); get it again"
                raise SettingsError(f"{path}: {told}") from None
            self._held[group] = [values for batch in batches for values in row_values(batch)]
        self._held.move_to_end(group)
        while len(self._held) > POOL:
            self._held.popitem(last=False)
        return self._held[group]

    def _read(self, row: ConversationRow) -> Conversation:
        messages = [Message(role=one["role"], parts=self._parts(one, row.file)) for one in row.messages]
        where = f"{row.file}, row {row.number}"
        if not any(message.role == "assistant" and message.text for message in messages):
            raise SettingsError(f"{where}: no_answer: holds no word of the assistant's")
        protocol = row.info.get("protocol")
        return Conversation(
            messages=messages,
            stopped=frozenset(number for number, one in enumerate(row.messages) if one.get("stopped")),
            tools=get_protocol(protocol).tools() if protocol in PROTOCOLS else None,
            kind=str(row.info.get("form") or ""),
            name=where,
        )

    def _parts(self, message: JsonMessage, file: Path) -> list[str | Frame]:
        content = message["content"]
        parts: list[str | Frame] = []
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if part["type"] == "text":
                parts.append(part["text"])
            elif part["type"] == "image":
                parts.append(self._picture(self.folders.find(part["image"], file)))
            else:
                for frame in self._frames(part, self.folders.find(part["video"], file)):
                    parts += [f"<{frame.time:.1f} seconds>", frame]
        return parts

    def _picture(self, path: Path) -> Frame:
        try:
            with Image.open(path) as image:
                fitted = image.convert("RGB").resize(self.sizing.fit(*image.size), Image.Resampling.BICUBIC)
        except OSError as error:
            raise VideoError(f"{path}: the picture cannot be read ({error.strerror or 'not a picture'})") from None
        return Frame(0.0, np.array(fitted))

    def _frames(self, part: dict[str, Any], path: Path) -> list[Frame]:
        """The frames of a video part: at so many a second, thinned to its limit."""
        if self._decoding is None:  # here, and not before: each loading process has its own
            self._decoding = (asyncio.new_event_loop(), VideoStore(DecodePool(workers=1)))
        loop, store = self._decoding

        async def decoded() -> list[Frame]:
            info = await store.probe(str(path))
            start, end = float(part.get("start") or 0.0), float(part.get("end") or info.duration)
            limit = int(part.get("frames") or self.data.frames)
            return await store.frames(str(path), sample_times(start, end, fps=self.data.fps, limit=limit), self.sizing)

        return loop.run_until_complete(decoded())


def _groups(path: Path) -> list[tuple[Path, int, int]]:
    with open_parquet(path) as file:
        return [(path, number, file.metadata.row_group(number).num_rows) for number in range(file.num_row_groups)]


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, sizes: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """An epoch's order of row groups, and where each pool of them ends, in rows."""
    order = [int(group) for group in np.random.default_rng([seed, epoch]).permutation(len(sizes))]
    pools = (order[first : first + POOL] for first in range(0, len(order), POOL))
    return order, list(accumulate(sum(sizes[group] for group in pool) for pool in pools))


@lru_cache(maxsize=4)
def _shuffled(seed: int, epoch: int, chunk: int, rows: int) -> Any:
    return np.random.default_rng([seed, epoch, chunk]).permutation(rows)
