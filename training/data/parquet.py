"""Conversations from Parquet files in the paper's layout, with videos decoded as the engine does.

Rows are parsed by `rows.py` and looked up by number, so that a run can resume anywhere.
"""

import asyncio
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache
from PIL import Image

from paravt_infer.chat import Message
from paravt_infer.errors import SettingsError, VideoError, first_line
from paravt_infer.protocols import PROTOCOLS, get_protocol
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_infer.video.store import VideoStore
from paravt_infer.video.types import Frame
from paravt_training.data.rows import (
    COLUMNS,
    ConversationRow,
    InvalidRow,
    JsonMessage,
    expand_globs,
    open_parquet,
    parse_row,
    row_values,
)
from paravt_training.data.videos import VideoFolders
from paravt_training.model.encode import Conversation
from paravt_training.recipe import ParquetData, TraceMix

SHUFFLE_GROUPS = 8
"""Row groups whose rows are shuffled together, and the maximum number in memory."""


class ParquetSource:
    """Rows of all files, each once per epoch, in an order that depends on the seed and the epoch.

    Row groups are visited in random order, and the rows of `SHUFFLE_GROUPS` of them are shuffled together: memory does
    not grow with the files.

    Args:
        multiple: of which the sides of frames are multiples, in pixels.

    Raises:
        SettingsError: a file does not exist or does not contain conversations.
    """

    def __init__(self, data: ParquetData, multiple: int):
        self.data = data
        self.sizing = FrameSizing(multiple=multiple, min_pixels=data.min_pixels, max_pixels=data.max_pixels)
        self.folders = VideoFolders(
            root=Path(data.videos) if data.videos else None,
            by_prefix={prefix: Path(folder) for prefix, folder in data.prefixes.items()},
        )
        self.groups: list[tuple[Path, int, int]] = [
            group for path in expand_globs(data.files, "recipe data.files") for group in _row_groups(path)
        ]
        """For each row group: its file, its index in the file, and its number of rows."""
        self.rows = sum(rows for *_, rows in self.groups)
        if not self.rows:
            raise SettingsError(f"recipe data.files: {', '.join(data.files)} have no rows")
        self.cache: LRUCache[int, list[dict[str, Any] | None]] = LRUCache(SHUFFLE_GROUPS)
        """The values of the row groups read last."""
        self._decoding: tuple[asyncio.AbstractEventLoop, VideoStore] | None = None

    def conversation(self, number: int, mix: TraceMix) -> Conversation:
        """Conversation `number` of an endless sequence of epochs; `mix` is ignored.

        Raises:
            SettingsError: the row is not a conversation; the message names file and row.
            VideoError: its video cannot be read.
        """
        row = self.row(number)
        if isinstance(row, InvalidRow):
            raise SettingsError(str(row))
        return self._conversation(row)

    def row(self, number: int) -> ConversationRow | InvalidRow:
        """Row `number` of an endless sequence of epochs."""
        group, index = self._locate(number)
        return parse_row(self._group(group)[index], self.groups[group][0], self._first_row(group) + index + 1)

    def _locate(self, number: int) -> tuple[int, int]:
        """The row group of row `number`, and its index in it."""
        epoch, number = divmod(number, self.rows)
        order, ends = _order(self.data.seed, epoch, tuple(rows for *_, rows in self.groups))
        chunk = bisect_right(ends, number)
        groups = order[chunk * SHUFFLE_GROUPS : (chunk + 1) * SHUFFLE_GROUPS]
        sizes = [self.groups[group][2] for group in groups]
        before = ends[chunk - 1] if chunk else 0
        row = int(_shuffled(self.data.seed, epoch, chunk, sum(sizes))[number - before])
        group_ends = list(accumulate(sizes))
        position = bisect_right(group_ends, row)
        return groups[position], row - (group_ends[position] - sizes[position])

    def _first_row(self, group: int) -> int:
        """The index in its file of a row group's first row."""
        path, index, _ = self.groups[group]
        return sum(rows for other, number, rows in self.groups if other == path and number < index)

    def _group(self, group: int) -> list[dict[str, Any] | None]:
        if group not in self.cache:
            path, index, _ = self.groups[group]
            try:
                with pq.ParquetFile(path) as file:
                    columns = [name for name in COLUMNS if name in file.schema_arrow.names]
                    batches = file.read_row_group(index, columns=columns).to_batches()
            except (pa.ArrowException, OSError) as error:
                fault = f"damaged in row group {index} ({first_line(error)}); copy it again"
                raise SettingsError(f"{path}: {fault}") from None
            self.cache[group] = [values for batch in batches for values in row_values(batch)]
        return self.cache[group]

    def _conversation(self, row: ConversationRow) -> Conversation:
        messages = [Message(role=message["role"], parts=self._parts(message, row.file)) for message in row.messages]
        where = f"{row.file}, row {row.number}"
        if not any(message.role == "assistant" and message.text for message in messages):
            raise SettingsError(f"{where}: no_answer: it has no assistant message")
        protocol = row.info.get("protocol")
        return Conversation(
            messages=messages,
            stopped=frozenset(index for index, message in enumerate(row.messages) if message.get("stopped")),
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
                parts.append(self._image(self.folders.resolve(part["image"], file)))
            else:
                for frame in self._frames(part, self.folders.resolve(part["video"], file)):
                    parts += [f"<{frame.time:.1f} seconds>", frame]
        return parts

    def _image(self, path: Path) -> Frame:
        try:
            with Image.open(path) as image:
                resized = image.convert("RGB").resize(self.sizing.fit(*image.size), Image.Resampling.BICUBIC)
        except OSError as error:
            raise VideoError(f"{path}: cannot read the image ({error.strerror or 'not an image'})") from None
        return Frame(0.0, np.array(resized))

    def _frames(self, part: dict[str, Any], path: Path) -> list[Frame]:
        """The frames of a video part, sampled at the recipe's rate up to the part's limit."""
        if self._decoding is None:  # not earlier: each loader process needs its own
            self._decoding = (asyncio.new_event_loop(), VideoStore(DecodePool(workers=1)))
        loop, store = self._decoding

        async def decoded() -> list[Frame]:
            info = await store.probe(str(path))
            start, end = float(part.get("start") or 0.0), float(part.get("end") or info.duration)
            limit = int(part.get("frames") or self.data.frames)
            return await store.frames(str(path), sample_times(start, end, fps=self.data.fps, limit=limit), self.sizing)

        return loop.run_until_complete(decoded())


def _row_groups(path: Path) -> list[tuple[Path, int, int]]:
    with open_parquet(path) as file:
        return [(path, index, file.metadata.row_group(index).num_rows) for index in range(file.num_row_groups)]


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, sizes: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """An epoch's order of row groups, and the row at which each chunk of `SHUFFLE_GROUPS` ends."""
    order = [int(group) for group in np.random.default_rng([seed, epoch]).permutation(len(sizes))]
    chunks = (order[first : first + SHUFFLE_GROUPS] for first in range(0, len(order), SHUFFLE_GROUPS))
    return order, list(accumulate(sum(sizes[group] for group in chunk) for chunk in chunks))


@lru_cache(maxsize=4)
def _shuffled(seed: int, epoch: int, chunk: int, rows: int) -> Any:
    return np.random.default_rng([seed, epoch, chunk]).permutation(rows)
