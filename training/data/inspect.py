"""What a set of rows holds: counts by source and question, calls a turn, lengths, missing videos, bad rows."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paravt_infer.protocols import get_protocol
from paravt_training.data.rows import BadRow, ConversationRow, text_of
from paravt_training.data.videos import Folders, prefix_of


def _numbers() -> "array[int]":
    return array("Q")


@dataclass(kw_only=True, slots=True)
class Counts:
    """Grows by a few numbers a row, whatever the rows' sizes."""

    rows: int = 0
    """Those that can be read."""
    with_calls: int = 0
    """Of those, the ones in which the assistant calls a tool."""
    bad_rows: Counter[str] = field(default_factory=Counter)
    """By fault."""
    sources: Counter[str] = field(default_factory=Counter)
    question_types: Counter[str] = field(default_factory=Counter)
    calls_a_turn: Counter[int] = field(default_factory=Counter)
    """How many of the assistant's turns have so many calls; 0 for answers."""
    turns: Counter[int] = field(default_factory=Counter)
    """How many rows have so many of the assistant's turns."""
    videos: Counter[str] = field(default_factory=Counter)
    """Videos that rows name, by prefix."""
    missing_videos: Counter[str] = field(default_factory=Counter)
    """Of those, the ones that are not there."""
    first_missing: dict[str, str] = field(default_factory=dict)
    """By prefix, where the first of them was looked for."""
    answer_words: "array[int]" = field(default_factory=_numbers)
    characters: "array[int]" = field(default_factory=_numbers)
    """Of all messages of a row."""
    tokens: "array[int]" = field(default_factory=_numbers)
    """Of the same texts, frames and the chat template's own words not counted; empty where no model was named."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values: counters by falling count, lengths as quantiles."""
        counters = ("bad_rows", "sources", "question_types", "calls_a_turn", "turns", "videos", "missing_videos")
        lengths = ("answer_words", "characters", *(["tokens"] if self.tokens else []))
        return {
            "rows": self.rows,
            "with_calls": self.with_calls,
            **{name: {str(key): count for key, count in getattr(self, name).most_common()} for name in counters},
            "first_missing": self.first_missing,
            **{name: quantiles(getattr(self, name)) for name in lengths},
        }


def counted(
    rows: Iterable[ConversationRow | BadRow],
    counts: Counts,
    *,
    folders: Folders,
    tokens: Callable[[str], int] | None = None,
) -> Iterator[ConversationRow | BadRow]:
    """The rows as they are; `counts` grows as they pass.

    Args:
        folders: where videos are looked for.
        tokens: how many tokens a text has.
    """
    protocol = get_protocol("paravt")
    for row in rows:
        if isinstance(row, BadRow):
            counts.bad_rows[row.fault] += 1
            yield row
            continue
        counts.rows += 1
        counts.sources[row.source] += 1
        counts.question_types[str(row.info.get("question_type") or "(none)")] += 1
        texts = [text_of(message) for message in row.messages]
        said = [text for text, message in zip(texts, row.messages, strict=True) if message["role"] == "assistant"]
        calls = [len(protocol.parse_calls(text)) for text in said]
        counts.calls_a_turn.update(calls)
        counts.turns[len(said)] += 1
        counts.with_calls += any(calls)
        counts.answer_words.append(len(row.answer.split()))
        counts.characters.append(sum(map(len, texts)))
        if tokens is not None:
            counts.tokens.append(sum(map(tokens, texts)))
        for video in row.videos:
            prefix, place = prefix_of(video), folders.find(video, row.file)
            counts.videos[prefix] += 1
            if not place.exists():
                counts.missing_videos[prefix] += 1
                counts.first_missing.setdefault(prefix, str(place))
        yield row


def quantiles(numbers: "array[int]") -> dict[str, float]:
    """Least, median, mean, 95th percentile and most; all 0 where there are none.

    >>> quantiles(array("Q", [1, 2, 3, 10]))
    {'least': 1.0, 'median': 2.5, 'mean': 4.0, 'p95': 8.95, 'most': 10.0}
    """
    values = np.frombuffer(numbers, np.uint64) if len(numbers) else np.zeros(1, np.uint64)
    measured = (values.min(), np.median(values), values.mean(), np.percentile(values, 95), values.max())
    return dict(
        zip(("least", "median", "mean", "p95", "most"), (round(float(one), 2) for one in measured), strict=True)
    )
