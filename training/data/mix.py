"""Mixes files by a manifest: row numbers are drawn first, then each file is read once from start to end.

The same manifest, seed and files give the same rows in the same order. Sources alternate at random, so that any stretch
of the mix has about its composition; the rows of one source keep their order.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import SettingsError
from paravt_infer.files import atomic_path
from paravt_training.data.manifest import Manifest
from paravt_training.data.rows import ConversationRow, InvalidRow, count_rows, expand_globs, message_text, read_rows
from paravt_training.data.writer import open_row_writer


@dataclass(kw_only=True, slots=True)
class SourceSummary:
    """What one source contributed."""

    tool: bool
    """As in the manifest."""
    held: int
    """Rows in its files."""
    asked: int | None
    """The manifest's count, where it has one."""
    files: dict[str, int]
    """File name to number of rows."""
    rows: int = 0
    """Rows written."""
    with_calls: int = 0
    """Rows written in which the assistant calls a tool."""
    bad_rows: int = 0
    """Rows that were drawn but could not be read."""


@dataclass(kw_only=True, slots=True)
class MixSummary:
    """What was written."""

    name: str
    seed: int
    rows: int = 0
    tool_fraction: float = 0.0
    """As measured in the rows."""
    stated_tool_fraction: float | None = None
    """As in the manifest."""
    shards: list[str] = field(default_factory=list)
    sources: dict[str, SourceSummary] = field(default_factory=dict)


def write_mix(
    manifest: Manifest,
    out: Path,
    *,
    data: Path = Path(),
    on_invalid: Callable[[InvalidRow], None] = lambda row: None,
    advance: Callable[[int], None] = lambda total: None,
) -> MixSummary:
    """Write the mix into the folder `out`, atomically: `NAME-00000-of-00010.parquet` and so on, and `summary.json`.

    Args:
        data: the base of the manifest's files.
        on_invalid: called with every row that cannot be read; it is left out and counted.
        advance: called after every row, with the total.

    Raises:
        SettingsError: a file is missing or cannot be written, `out` is not empty, the requested rows or fraction are
            not available, or the rows contradict the manifest; says what would help.
    """
    files = {source.name: expand_globs(source.files, f"source {source.name}", data) for source in manifest.sources}
    sizes = {name: [count_rows(file) for file in paths] for name, paths in files.items()}
    allocation = manifest.allocate({name: sum(counts) for name, counts in sizes.items()})
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"{out}: already exists and is not an empty folder; choose another one")
    summary = MixSummary(name=manifest.name, seed=manifest.seed, stated_tool_fraction=manifest.tool_fraction)
    for source in manifest.sources:
        counts = dict(zip((file.name for file in files[source.name]), sizes[source.name], strict=True))
        summary.sources[source.name] = SourceSummary(
            tool=source.tool, held=sum(sizes[source.name]), asked=source.count, files=counts
        )
    drawn = {name: _draw_rows(files[name], sizes[name], allocation[name], manifest.seed, name) for name in files}
    # The source of every row, as its index: two bytes per row.
    order = np.repeat(np.arange(len(allocation), dtype=np.uint16), list(allocation.values()))
    np.random.default_rng(manifest.seed).shuffle(order)
    with atomic_path(out) as scratch:
        rows = _interleave(order, drawn, summary, on_invalid, advance)
        shards = -(-len(order) // manifest.shard_rows)
        for shard in range(shards):
            name = f"{manifest.name}-{shard:05d}-of-{shards:05d}.parquet"
            with open_row_writer(scratch / name) as writer:
                for row in islice(rows, manifest.shard_rows):
                    if row is not None:
                        writer.write(row)
            summary.shards.append(name)
        _verify(manifest, summary)
        (scratch / "summary.json").write_text(json.dumps(asdict(summary), indent=1) + "\n", encoding="utf-8")
    return summary


def _draw_rows(
    files: list[Path], sizes: list[int], count: int, seed: int, name: str
) -> Iterator[ConversationRow | InvalidRow]:
    """`count` rows of a source. Which ones does not depend on the other sources."""
    chosen: NDArray[np.bool_] = np.zeros(sum(sizes), bool)
    chosen[np.random.default_rng([seed, crc32(name.encode())]).choice(len(chosen), count, replace=False)] = True
    for file, end, size in zip(files, np.cumsum(sizes), sizes, strict=True):
        yield from read_rows(file, chosen[end - size : end])


def _interleave(
    order: NDArray[np.uint16],
    drawn: dict[str, Iterator[ConversationRow | InvalidRow]],
    summary: MixSummary,
    on_invalid: Callable[[InvalidRow], None],
    advance: Callable[[int], None],
) -> Iterator[ConversationRow | None]:
    """The rows in the order of the mix, each with its source's name; None in place of an invalid one."""
    names = list(drawn)
    for index in order:
        name = names[index]
        row, source = next(drawn[name]), summary.sources[name]
        advance(len(order))
        if isinstance(row, InvalidRow):
            source.bad_rows += 1
            on_invalid(row)
            yield None
            continue
        source.rows += 1
        source.with_calls += any(
            "<tool_call>" in message_text(message) for message in row.messages if message["role"] == "assistant"
        )
        yield replace(row, info={**row.info, "source": name})


def _verify(manifest: Manifest, summary: MixSummary) -> None:
    """Measure the rows, and compare them with what the manifest states."""
    summary.rows = sum(source.rows for source in summary.sources.values())
    if not summary.rows:
        raise SettingsError("none of the rows can be read; run `paravt data check` to see why")
    summary.tool_fraction = sum(source.with_calls for source in summary.sources.values()) / summary.rows
    stated = manifest.tool_fraction
    if stated is not None and abs(summary.tool_fraction - stated) > manifest.tolerance:
        wrong = [
            f"source {name} (tool: {source.tool}) has calls in {source.with_calls:,} of {source.rows:,} rows"
            for name, source in summary.sources.items()
            if source.with_calls != (source.rows if source.tool else 0)
        ]
        reason = "; ".join(wrong) or "too many rows could not be read"
        raise SettingsError(
            f"tool_fraction {stated:g} is not met: {summary.tool_fraction:.3f} of the rows have calls ({reason}); "
            "split that source's files, or correct its tool"
        )
