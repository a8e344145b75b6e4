"""`paravt data`: training data inspected, converted, checked, filtered and mixed, one row at a time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paravt_cli import options as shared
from paravt_cli import tables
from paravt_infer.console import delayed_progress, say
from paravt_infer.errors import SettingsError

if TYPE_CHECKING:
    from paravt_training.data.rows import ConversationRow, InvalidRow
    from paravt_training.data.videos import VideoFolders

app = typer.Typer(help="Inspect, convert, check, filter and mix training data.", no_args_is_help=True)

FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE", help="Parquet files of conversations.")]
InArgument = Annotated[Path, typer.Argument(metavar="IN", help="Parquet file of conversations.")]
OutArgument = Annotated[Path, typer.Argument(metavar="OUT", help="Parquet file to write.")]


@app.command("inspect")
def inspect(
    files: FilesArgument,
    videos: Annotated[
        Path | None, typer.Option(help="Folder that video paths are relative to.", show_default="each file's own")
    ] = None,
    folder: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="PREFIX=FOLDER", help="Folder for paths that start with PREFIX. Repeatable."),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Also count tokens with this model's tokeniser.", show_default=False)
    ] = "",
    as_json: shared.JsonOption = False,
) -> None:
    """Count rows: sources, question types, calls per turn, lengths, missing videos, bad rows."""
    import json

    from paravt_infer.model import load_model_files
    from paravt_training.data.inspect import RowStatistics, inspect_rows

    folders, statistics = _folders(videos, folder or []), RowStatistics()
    chat = load_model_files(model).chat if model else None
    tokens = (lambda text: len(chat.encode_text(text))) if chat else None
    for _ in _readable(inspect_rows(_rows(files, "counting rows"), statistics, folders=folders, tokens=tokens)):
        pass
    if as_json:
        print(json.dumps(statistics.as_dict(), indent=1))
    else:
        tables.print_data_counts(statistics.as_dict())


@app.command("convert")
def convert(source: InArgument, out: OutArgument) -> None:
    """Convert sequential traces to parallel ones: independent calls share a turn, frames become summaries."""
    from paravt_training.data.convert import ConversionCounts, convert_rows

    counts = ConversionCounts()
    written = _write(convert_rows(_rows([source], "converting rows"), counts), out)
    say(f"{out}: {written:,} of {counts.rows:,} rows, {counts.changed:,} of them changed")
    _say_left_out(counts.dropped)


@app.command("check")
def check(files: FilesArgument) -> None:
    """Check traces: strict JSON calls, known tools, start before end, an answer, roles in order.

    Prints a line for each fault, with its file and row, and exits with 1 if there is any.
    """
    from paravt_training.data.check import check_row
    from paravt_training.data.rows import InvalidRow

    rows = bad = 0
    for row in _rows(files, "checking rows"):
        found = [row] if isinstance(row, InvalidRow) else check_row(row)
        for fault in found:
            print(fault)
        rows += 1
        bad += bool(found)
    say(f"{rows:,} rows, {bad:,} with faults")
    if bad:
        raise typer.Exit(1)


@app.command("filter")
def filter_(
    source: InArgument,
    out: OutArgument,
    rollouts: Annotated[
        Path | None, typer.Option(help="Rollouts file; questions never answered right in it are dropped.")
    ] = None,
    most_words: Annotated[int, typer.Option(min=1, help="Maximum number of words in an open answer.")] = 15,
) -> None:
    """Drop questions that rewards cannot teach: with long open answers, or never answered right."""
    from paravt_training.data.filter import FilterCounts, filter_rows, load_rollout_answers

    counts = FilterCounts()
    answers = load_rollout_answers(rollouts) if rollouts else None
    _write(filter_rows(_rows([source], "filtering rows"), counts, answers=answers, max_words=most_words), out)
    say(f"{out}: {counts.kept:,} of {counts.rows:,} rows kept")
    _say_left_out(counts.dropped)
    if counts.without_rollouts:
        say(f"  {counts.without_rollouts:,} kept rows have no rollouts")


@app.command("mix")
def mix(
    manifest: Annotated[str, typer.Argument(help="YAML file, or name of a bundled one: paravt_sft_mix.")],
    out: Annotated[Path, typer.Option(help="Folder to write: a new or an empty one.")],
    data: Annotated[Path, typer.Option(help="Folder that the manifest's paths are relative to.")] = Path(),
) -> None:
    """Mix files by a manifest, with a given fraction of rows that call tools. The same seed gives the same mix."""
    from paravt_training.data.manifest import load_manifest
    from paravt_training.data.mix import write_mix

    chosen = load_manifest(manifest)
    with delayed_progress("mixing rows") as advance:
        mixed = write_mix(chosen, out, data=data, on_invalid=say, advance=advance)
    for name, source in mixed.sources.items():
        short = f", {source.asked:,} requested" if source.asked and source.asked > source.rows else ""
        say(f"  {name}: {source.rows:,} rows of {source.held:,}, {source.with_calls:,} with calls{short}")
    if bad := sum(source.bad_rows for source in mixed.sources.values()):
        say(f"  {bad:,} rows could not be read and are left out")
    say(f"{mixed.rows:,} rows in {len(mixed.shards)} files, {mixed.tool_fraction:.1%} with calls")
    print(out)


def _rows(files: Sequence[Path], description: str) -> Iterator["ConversationRow | InvalidRow"]:
    """The rows of all files, with a progress bar. Raises SettingsError for a wrong file before anything is read."""
    from paravt_training.data.rows import count_rows, read_rows

    total = sum(count_rows(file) for file in files)
    with delayed_progress(description, total) as advance:
        for file in files:
            for row in read_rows(file):
                advance()
                yield row


def _readable(rows: Iterator["ConversationRow | InvalidRow"]) -> Iterator["ConversationRow"]:
    """The rows that could be read; the others are reported on stderr."""
    from paravt_training.data.rows import InvalidRow

    for row in rows:
        if isinstance(row, InvalidRow):
            say(row)
        else:
            yield row


def _write(rows: Iterator["ConversationRow | InvalidRow"], out: Path) -> int:
    """Write the readable rows to a Parquet file. Returns their number."""
    from paravt_training.data.writer import open_row_writer

    with open_row_writer(out) as writer:
        for row in _readable(rows):
            writer.write(row)
    return writer.rows


def _say_left_out(reasons: Counter[str]) -> None:
    for reason, count in reasons.most_common():
        say(f"  {reason}: {count:,} left out")


def _folders(root: Path | None, mapped: list[str]) -> "VideoFolders":
    from paravt_training.data.videos import VideoFolders

    if root is not None and not root.is_dir():
        raise SettingsError(f"--videos {root}: no such folder; check the path")
    by_prefix = {}
    for pair in mapped:
        prefix, equals, folder = pair.partition("=")
        if not equals or not prefix or not Path(folder).is_dir():
            raise SettingsError(f"--map {pair}: write PREFIX=FOLDER with an existing folder")
        by_prefix[prefix] = Path(folder)
    return VideoFolders(root=root, by_prefix=by_prefix)
