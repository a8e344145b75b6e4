"""Episodes run from a terminal: one question drawn live, or a file of questions with a progress bar."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from rich.live import Live

from paravt_cli import view
from paravt_infer.batch import Batch
from paravt_infer.console import progress_bar, say, stderr
from paravt_infer.engine import Engine, EngineSpec
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_infer.settings import Settings

T = TypeVar("T")


def run(work: Coroutine[None, None, T]) -> T:
    """Run to the end; SIGTERM stops cleanly, as Ctrl-C does, with exit code 143."""

    async def guarded() -> T:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        say("paravt: stopped")
        sys.exit(143)


async def run_one(spec: EngineSpec, settings: Settings, question: Question, *, draw: bool) -> Rollout:
    """Ask one question and show its progress: drawn on a terminal, otherwise a line for each step on stderr.

    Args:
        draw: draw on stdout if that is a terminal; otherwise stdout stays free for the result.
    """
    console = stderr()
    async with _open_engine(spec, settings) as engine:
        on_stdout = draw and sys.stdout.isatty()
        if not on_stdout and not console.is_terminal:
            return await engine.ask(question, on_change=_StepLog().change)
        # On stdout the last state drawn is the answer. On stderr the drawing disappears: stdout gets the answer.
        with Live(console=None if on_stdout else console, refresh_per_second=8, transient=not on_stdout) as live:
            return await engine.ask(
                question, on_change=lambda rollout: live.update(view.draw(rollout, width=live.console.width))
            )


async def run_batch(spec: EngineSpec, batch: Batch, *, concurrency: int) -> dict[str, int]:
    """Ask a file of questions. Returns the number of rollouts by status."""
    counts: dict[str, int] = {}
    async with _open_engine(spec, batch.settings) as engine:
        with progress_bar() as progress:
            task = progress.add_task("asking", total=len(batch.questions))
            async for rollout in batch.run(engine, concurrency=concurrency):
                counts[rollout.status] = counts.get(rollout.status, 0) + 1
                progress.update(task, advance=1, description=f"asking ({counts.get('failed', 0)} failed)")
    return counts


@asynccontextmanager
async def _open_engine(spec: EngineSpec, settings: Settings) -> AsyncGenerator[Engine, None]:
    """The engine; while it loads, a spinner on a terminal and plain lines elsewhere."""
    console = stderr()
    async with AsyncExitStack() as stack:
        with console.status("loading the model") as status:
            engine = await stack.enter_async_context(
                spec.open(settings, say=status.update if console.is_terminal else say)
            )
        yield engine


class _StepLog:
    """Progress for a log: a line whenever the episode's current step changes."""

    def __init__(self) -> None:
        self.last = ""

    def change(self, rollout: Rollout) -> None:
        line = view.current_step(rollout)
        if rollout.status == "running" and line != self.last:
            say(line)
            self.last = line
