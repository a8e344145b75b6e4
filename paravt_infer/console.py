"""Progress and messages on stderr: stdout carries results only, so that it can be piped."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

DELAY_SECONDS = 2.0
"""How long `delayed_progress` waits before it shows anything."""


def stderr() -> Console:
    return Console(stderr=True)


def say(line: object, *, style: str | None = None, console: Console | None = None) -> None:
    """Print one line to stderr verbatim: no markup, no highlighting, no wrapping."""
    (console or stderr()).print(str(line), style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)


def printable(text: str) -> str:
    """Text without control characters: what a model generates must not move the cursor, or end a page."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def progress_bar(*more: ProgressColumn, console: Console | None = None, transient: bool = False) -> Progress:
    """A progress bar with description, count, elapsed and remaining time, then the columns `more`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, *times, *more, console=console or stderr(), transient=transient)


@contextmanager
def delayed_progress(description: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A progress bar that appears after `DELAY_SECONDS`. Call the yielded function once per finished item.

    A call may also correct the total: ``advance(total=1000)``.
    """
    progress = progress_bar(transient=True)
    task = progress.add_task(description, total=total)
    count, began, shown = 0, time.monotonic(), 0.0

    def advance(total: int | None = None) -> None:
        nonlocal count, shown
        count, now = count + 1, time.monotonic()
        if now - shown < 0.1:  # redrawing for each of a million rows would take longer than reading them
            return
        progress.update(task, completed=count, total=total)
        shown = now
        if not progress.live.is_started and now - began > DELAY_SECONDS:
            progress.start()

    try:
        yield advance
    finally:
        if progress.live.is_started:
            progress.stop()
