"""Statistics of rows: counts by source and question type, calls per turn, lengths, missing videos, invalid rows."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paravt_infer.protocols import get_protocol
from paravt_training.data.rows import ConversationRow, InvalidRow, message_text
from paravt_training.data.videos import VideoFolders, video_prefix


def _numbers() -> "array[int]":
    return array("Q")


@dataclass(kw_only=True, slots=True)
class RowStatistics:
    """Grows by a few numbers per row, whatever the size of the rows."""

    rows: int = 0
    """Those that can be read."""
    with_calls: int = 0
    """Readable rows in which the assistant calls a tool."""
    bad_rows: Counter[str] = field(default_factory=Counter)
    """By fault."""
    sources: Counter[str] = field(default_factory=Counter)
    question_types: Counter[str] = field(default_factory=Counter)
    calls_a_turn: Counter[int] = field(default_factory=Counter)
    """Number of calls to assistant turns with that many; 0 for answers."""
    turns: Counter[int] = field(default_factory=Counter)
    """Number of assistant turns to rows with that many."""
    videos: Counter[str] = field(default_factory=Counter)
    """Videos that rows name, by prefix."""
    missing_videos: Counter[str] = field(default_factory=Counter)
    """Those of them that do not exist, by prefix."""
    first_missing: dict[str, str] = field(default_factory=dict)
    """By prefix, the expected path of the first missing one."""
    answer_words: "array[int]" = field(default_factory=_numbers)
    characters: "array[int]" = field(default_factory=_numbers)
    """Characters in all messages, per row."""
    tokens: "array[int]" = field(default_factory=_numbers)
    """Tokens in all messages, per row, without frames and the chat template; empty where no tokenizer was given."""

    def as_dict(self) -> dict[str, Any]:
        """JSON values: counters in descending order, lengths as quantiles."""
        counters = ("bad_rows", "sources", "question_types", "calls_a_turn", "turns", "videos", "missing_videos")
        lengths = ("answer_words", "characters", *(["tokens"] if self.tokens else []))
        return {
            "rows": self.rows,
            "with_calls": self.with_calls,
            **{name: {str(key): count for key, count in getattr(self, name).most_common()} for name in counters},
            "first_missing": self.first_missing,
            **{name: quantiles(getattr(self, name)) for name in lengths},
        }


def inspect_rows(
    rows: Iterable[ConversationRow | InvalidRow],
    statistics: RowStatistics,
    *,
    folders: VideoFolders,
    tokens: Callable[[str], int] | None = None,
) -> Iterator[ConversationRow | InvalidRow]:
    """The rows, unchanged; `statistics` is updated along the way.

    Args:
        folders: where videos are expected.
        tokens: counts the tokens of a text.
    """
    protocol = get_protocol("paravt")
    for row in rows:
        if isinstance(row, InvalidRow):
            statistics.bad_rows[row.fault] += 1
            yield row
            continue
        statistics.rows += 1
        statistics.sources[row.source] += 1
        statistics.question_types[str(row.info.get("question_type") or "(none)")] += 1
        texts = list(map(message_text, row.messages))
        turns = [text for text, message in zip(texts, row.messages, strict=True) if message["role"] == "assistant"]
        calls = [len(protocol.parse_calls(text)) for text in turns]
        statistics.calls_a_turn.update(calls)
        statistics.turns[len(turns)] += 1
        statistics.with_calls += any(calls)
        statistics.answer_words.append(len(row.answer.split()))
        statistics.characters.append(sum(map(len, texts)))
        if tokens is not None:
            statistics.tokens.append(sum(map(tokens, texts)))
        for video in row.videos:
            prefix, path = video_prefix(video), folders.resolve(video, row.file)
            statistics.videos[prefix] += 1
            if not path.exists():
                statistics.missing_videos[prefix] += 1
                statistics.first_missing.setdefault(prefix, str(path))
        yield row


def quantiles(numbers: "array[int]") -> dict[str, float]:
    """Minimum, median, mean, 95th percentile and maximum; all 0 where there are no numbers.

    >>> quantiles(array("Q", [1, 2, 3, 10]))
    {'least': 1.0, 'median': 2.5, 'mean': 4.0, 'p95': 8.95, 'most': 10.0}
    """
    values = np.frombuffer(numbers, np.uint64) if len(numbers) else np.zeros(1, np.uint64)
    measured = (values.min(), np.median(values), values.mean(), np.percentile(values, 95), values.max())
    keys = ("least", "median", "mean", "p95", "most")
    return {key: round(float(value), 2) for key, value in zip(keys, measured, strict=True)}
