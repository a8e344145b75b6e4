"""Mixes by a manifest: row numbers are drawn first, then each file is read once, from its first row to its last.

The same manifest, seed and files give the same rows in the same order. Sources follow each other at random, so that
any stretch of the mix has about its composition; a source's own rows keep their order.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import SettingsError
from paravt_training.data.manifest import Manifest
from paravt_training.data.rows import BadRow, ConversationRow, count_rows, find_files, read_rows, text_of
from paravt_training.data.writer import RowWriter


@dataclass(kw_only=True, slots=True)
class Given:
    """What a source gave."""

    tool: bool
    """As the manifest says."""
    held: int
    """Rows of its files."""
    asked: int | None
    """The manifest's count, where it has one."""
    files: dict[str, int]
    """Names, and their numbers of rows."""
    rows: int = 0
    """Written."""
    with_calls: int = 0
    """Of those, the ones in which the assistant calls a tool."""
    bad_rows: int = 0
    """Drawn but not readable, and so left out."""


@dataclass(kw_only=True, slots=True)
class Mixed:
    """What was written."""

    name: str
    seed: int
    rows: int = 0
    tool_fraction: float = 0.0
    """As measured in the rows."""
    stated_tool_fraction: float | None = None
    """As the manifest says."""
    shards: list[str] = field(default_factory=list)
    sources: dict[str, Given] = field(default_factory=dict)


def mix(
    manifest: Manifest,
    out: Path,
    *,
    data: Path = Path(),
    bad: Callable[[BadRow], None] = lambda row: None,
    tick: Callable[[int], None] = lambda rows: None,
) -> Mixed:
    """Write the mix into the folder `out`: `NAME-00000-of-00010.parquet` and so on, and `summary.json`; or nothing.

    Args:
        data: what the manifest's files start from.
        bad: told of every row that cannot be read; it is left out and counted.
        tick: told how many rows there will be, as they are written.

    Raises:
        SettingsError: a file is missing or cannot be written, `out` holds something, the rows or the stated
            fraction cannot be had, or the rows read do not bear the manifest out; says what could be done.
    """
    files = {source.name: find_files(source.files, f"source {source.name}", data) for source in manifest.sources}
    sizes = {name: [count_rows(file) for file in paths] for name, paths in files.items()}
    shares = manifest.shares({name: sum(held) for name, held in sizes.items()})
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"{out}: there is something already; name another folder")
    mixed = Mixed(name=manifest.name, seed=manifest.seed, stated_tool_fraction=manifest.tool_fraction)
    for source in manifest.sources:
        names = dict(zip((file.name for file in files[source.name]), sizes[source.name], strict=True))
        held = sum(sizes[source.name])
        mixed.sources[source.name] = Given(tool=source.tool, held=held, asked=source.count, files=names)
    drawn = {name: _drawn(files[name], sizes[name], shares[name], manifest.seed, name) for name in files}
    # So many labels as rows, one byte each or two.
    labels = np.repeat(np.arange(len(shares), dtype=np.uint16), list(shares.values()))
    np.random.default_rng(manifest.seed).shuffle(labels)
    scratch = out.with_name(f".{out.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        rows = _told(labels, drawn, mixed, bad, tick)
        shards = -(-len(labels) // manifest.shard_rows)
        for shard in range(shards):
            name = f"{manifest.name}-{shard:05d}-of-{shards:05d}.parquet"
            with RowWriter(scratch / name) as writer:
                for row in islice(rows, manifest.shard_rows):
                    if row is not None:
                        writer.write(row)
            mixed.shards.append(name)
        _verify(manifest, mixed)
        (scratch / "summary.json").write_text(json.dumps(asdict(mixed), indent=1) + "\n", encoding="utf-8")
        scratch.replace(out)
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written ({error.strerror or error}); name another folder") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return mixed


def _drawn(files: list[Path], sizes: list[int], share: int, seed: int, name: str) -> Iterator[ConversationRow | BadRow]:
    """`share` of a source's rows. Which ones does not depend on the other sources."""
    chosen: NDArray[np.bool_] = np.zeros(sum(sizes), bool)
    chosen[np.random.default_rng([seed, crc32(name.encode())]).choice(len(chosen), share, replace=False)] = True
    for file, end, size in zip(files, np.cumsum(sizes), sizes, strict=True):
        yield from read_rows(file, chosen[end - size : end])


def _told(
    labels: NDArray[np.uint16],
    drawn: dict[str, Iterator[ConversationRow | BadRow]],
    mixed: Mixed,
    bad: Callable[[BadRow], None],
    tick: Callable[[int], None],
) -> Iterator[ConversationRow | None]:
    """The rows in the mix's order, each naming its source; None in the place of a bad one."""
    names = list(drawn)
    for label in labels:
        name = names[label]
        row, given = next(drawn[name]), mixed.sources[name]
        tick(len(labels))
        if isinstance(row, BadRow):
            given.bad_rows += 1
            bad(row)
            yield None
            continue
        given.rows += 1
        given.with_calls += any(
            "<tool_call>" in text_of(message) for message in row.messages if message["role"] == "assistant"
        )
        yield replace(row, info={**row.info, "source": name})


def _verify(manifest: Manifest, mixed: Mixed) -> None:
    """Measure the rows, and hold them against what the manifest says of them."""
    mixed.rows = sum(given.rows for given in mixed.sources.values())
    if not mixed.rows:
        raise SettingsError("none of the rows can be read; `paravt data check` says why")
    mixed.tool_fraction = sum(given.with_calls for given in mixed.sources.values()) / mixed.rows
    stated = manifest.tool_fraction
    if stated is not None and abs(mixed.tool_fraction - stated) > manifest.tolerance:
        wrong = [
            f"source {name} has calls in {given.with_calls:,} of {given.rows:,} rows and says tool: {given.tool}"
            for name, given in mixed.sources.items()
            if given.with_calls != (given.rows if given.tool else 0)
        ]
        why = "; ".join(wrong) or "too many rows could not be read"
        raise SettingsError(
            f"tool_fraction {stated:g} is not met: {mixed.tool_fraction:.3f} of the rows hold calls ({why}); "
            "split that source's files, or mend its tool"
        )
