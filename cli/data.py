"""`paravt data`: rows of conversations looked at, converted, checked, filtered and mixed, one at a time."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from paravt_training.data.rows import ConversationRow, InvalidRow
    from paravt_training.data.videos import VideoFolders

app = typer.Typer(help="Look at, convert, check, filter and mix training data.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="Parquet files of conversations.")]
In = Annotated[Path, typer.Argument(metavar="IN", help="A Parquet file of conversations.")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The Parquet file to write.")]


@app.command("inspect")
def inspect(
    files: Files,
    videos: Annotated[
        Path | None,
        typer.Option(help="The folder that the rows' video paths start from.", show_default="each file's own"),
    ] = None,
    folder: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="PREFIX=FOLDER", help="A folder for paths that begin with PREFIX. Repeat it."),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Count tokens too, as this model does.", show_default=False)
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count what files hold: sources, question types, calls a turn, lengths, missing videos, bad rows."""
    import json

    from paravt_infer.model import load_model_files
    from paravt_training.data.inspect import RowStatistics, inspect_rows

    folders, counts = _folders(videos, folder or []), RowStatistics()
    chat = load_model_files(model).chat if model else None
    tokens = (lambda text: len(chat.encode_text(text))) if chat else None
    for _ in _good(inspect_rows(_rows(files, "counting rows"), counts, folders=folders, tokens=tokens)):
        pass
    if as_json:
        print(json.dumps(counts.as_dict(), indent=1))
        return
    from rich.console import Console

    Console().print(_table(counts.as_dict()))


@app.command("convert")
def convert(source: In, out: Out) -> None:
    """Turn sequential traces into parallel ones: independent calls share a turn, frames become words."""
    from paravt_training.data.convert import ConversionCounts, convert_rows
    from paravt_training.data.writer import open_row_writer

    report = ConversionCounts()
    with open_row_writer(out) as writer:
        for row in _good(convert_rows(_rows([source], "converting rows"), report)):
            writer.write(row)
    _say(f"{out}: {writer.rows:,} of {report.rows:,} rows, {report.changed:,} of them changed")
    _say_left_out(report.dropped)


@app.command("check")
def check(files: Files) -> None:
    """Check traces: strict JSON calls, known tools, start before end, an answer, roles in order.

    Prints a line for each fault, with its file and row, and exits with 1 where there is one.
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
    _say(f"{rows:,} rows, {bad:,} with faults")
    if bad:
        raise typer.Exit(1)


@app.command("filter")
def filter_(
    source: In,
    out: Out,
    rollouts: Annotated[
        Path | None,
        typer.Option(help="Rollouts of these questions (.parquet, .jsonl): those never right go.", show_default=False),
    ] = None,
    most_words: Annotated[int, typer.Option(min=1, help="Words an open answer may have.")] = 15,
) -> None:
    """Leave out questions that rewards cannot teach: with long open answers, or never answered right."""
    from paravt_training.data.filter import FilterCounts, filter_rows, load_rollout_answers
    from paravt_training.data.writer import open_row_writer

    report = FilterCounts()
    answers = load_rollout_answers(rollouts) if rollouts else None
    with open_row_writer(out) as writer:
        for row in _good(filter_rows(_rows([source], "filtering rows"), report, answers=answers, max_words=most_words)):
            writer.write(row)
    _say(f"{out}: {report.kept:,} of {report.rows:,} rows kept")
    _say_left_out(report.dropped)
    if report.without_rollouts:
        _say(f"  {report.without_rollouts:,} kept rows have no rollouts")


@app.command("mix")
def mix(
    manifest: Annotated[str, typer.Argument(help="A YAML file, or one that ships: paravt_sft_mix.")],
    out: Annotated[Path, typer.Option(help="The folder to write; there must be none of this name, or an empty one.")],
    data: Annotated[Path, typer.Option(help="The folder that the manifest's files start from.")] = Path(),
) -> None:
    """Mix files by a manifest, with a stated part of rows that call tools. The same seed gives the same mix."""
    from paravt_training.data.manifest import load_manifest
    from paravt_training.data.mix import write_mix

    bad: list[int] = []

    def told(row: "InvalidRow") -> None:
        _say(row)
        bad.append(row.number)

    chosen = load_manifest(manifest)
    with _bar("mixing rows") as tick:
        mixed = write_mix(chosen, out, data=data, on_invalid=told, advance=tick)
    for name, given in mixed.sources.items():
        short = f", {given.asked:,} were asked for" if given.asked and given.asked > given.rows else ""
        _say(f"  {name}: {given.rows:,} rows of {given.held:,}, {given.with_calls:,} with calls{short}")
    if bad:
        _say(f"  {len(bad):,} rows could not be read and are left out")
    _say(f"{mixed.rows:,} rows in {len(mixed.shards)} files, {mixed.tool_fraction:.1%} with calls")
    print(out)


def _say(line: object) -> None:
    """A line on stderr; stdout is for results."""
    typer.echo(str(line), err=True)


def _say_left_out(reasons: Counter[str]) -> None:
    for reason, count in reasons.most_common():
        _say(f"  {reason}: {count:,} left out")


def _rows(files: Sequence[Path], doing: str) -> Iterator["ConversationRow | InvalidRow"]:
    """The rows of all files, with a bar; wrong files are told before anything is read."""
    from paravt_training.data.rows import count_rows, read_rows

    total = sum(count_rows(file) for file in files)
    with _bar(doing) as tick:
        for file in files:
            for row in read_rows(file):
                tick(total)
                yield row


def _good(rows: Iterator["ConversationRow | InvalidRow"]) -> Iterator["ConversationRow"]:
    """Those that can be read; the others are told on stderr."""
    from paravt_training.data.rows import InvalidRow

    for row in rows:
        if isinstance(row, InvalidRow):
            _say(row)
        else:
            yield row


@contextmanager
def _bar(doing: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, shown once two seconds have passed; each call is one more row of so many."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task, shown = progress.add_task(""), time.monotonic() + 2
    done = 0

    def tick(total: int) -> None:
        nonlocal done
        done += 1
        if done % 64 == 0:
            progress.update(task, completed=done, total=total)
            if not progress.live.is_started and time.monotonic() > shown:
                progress.start()

    try:
        yield tick
    finally:
        if progress.live.is_started:
            progress.stop()


def _folders(root: Path | None, mapped: list[str]) -> "VideoFolders":
    from paravt_infer.errors import SettingsError
    from paravt_training.data.videos import VideoFolders

    if root is not None and not root.is_dir():
        raise SettingsError(f"--videos {root}: no such folder; check the path")
    by_prefix = {}
    for pair in mapped:
        prefix, equals, folder = pair.partition("=")
        if not equals or not prefix or not Path(folder).is_dir():
            raise SettingsError(f"--map {pair}: write PREFIX=FOLDER with a folder that is there")
        by_prefix[prefix] = Path(folder)
    return VideoFolders(root=root, by_prefix=by_prefix)


def _table(counts: dict[str, Any]) -> Any:
    """Counts as a table of one block a measure."""
    from rich.table import Table

    table = Table("what", "value", "count", box=None)
    table.columns[2].justify = "right"
    table.add_row("rows", "", f"{counts['rows']:,}")
    table.add_row("", "with tool calls", f"{counts['with_calls']:,}")
    for name, values in counts.items():
        if name in ("rows", "with_calls", "first_missing"):
            continue
        lengths = name in ("answer_words", "characters", "tokens")
        pairs = values.items() if lengths or name.endswith(("videos", "types")) else _in_order(values)
        for number, (value, count) in enumerate(pairs):
            named = f"{value} (such as {counts['first_missing'][value]})" if name == "missing_videos" else str(value)
            table.add_row("" if number else name.replace("_", " "), named, f"{count:,g}" if lengths else f"{count:,}")
    return table


def _in_order(values: dict[str, int]) -> list[tuple[str, int]]:
    """A histogram by its numbers, other counts as they are."""
    pairs = list(values.items())
    return sorted(pairs, key=lambda pair: int(pair[0])) if all(key.isdigit() for key in values) else pairs
