"""Episodes run from a terminal: one question drawn live, or a file of questions with a progress bar."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rich import get_console
from rich.live import Live

from paravt_cli import view
from paravt_infer.batch import Batch
from paravt_infer.console import progress_bar, say, stderr
from paravt_infer.engine import Engine, EngineSpec
from paravt_infer.errors import BackendError
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout, rollout_to_json
from paravt_infer.rollout_files import save_rollouts
from paravt_infer.settings import Settings

BUNDLED = (
    "the bundled checkpoint answered: it only understands videos of the sample world; "
    "for other videos name a model with --model"
)


def ask_one(spec: EngineSpec, settings: Settings, question: Question, *, as_json: bool, save: str) -> None:
    """Ask a question, show its progress, and print the answer (on a terminal, draw it) or the rollout as JSON.

    Raises BackendError if the episode failed or has no answer. `save` may be empty.
    """
    rollout = _run(_ask(spec, settings, question, draw=not as_json))
    if as_json:
        print(rollout_to_json(rollout))
    elif not get_console().is_terminal and rollout.answer is not None:
        print(rollout.answer)
    if save:  # last, so that a full disk does not cost the answer
        save_rollouts(rollout, save)
    for note in [BUNDLED] * (not spec.model and not spec.servers) + rollout.backend.notes:
        say(f"note: {note}", style="dim")
    if rollout.status == "failed":
        raise BackendError(rollout.error or "the episode failed")
    if rollout.answer is None:
        end = " ".join(rollout.turns[-1].response.split())[-120:] if rollout.turns else ""
        raise BackendError(f"no answer could be read from the model's response, which ends: {end!r}")


def ask_file(spec: EngineSpec, batch: Batch, *, concurrency: int) -> None:
    """Ask a file of questions with a progress bar. Raises BackendError if an episode failed."""
    counts = _run(_ask_all(spec, batch, concurrency))
    total, failed, unanswered = len(batch.questions), counts["failed"], counts["no_answer"]
    without = f", {unanswered} without an answer" if unanswered else ""
    say(f"{total} questions, {total - failed - unanswered} answered{without}; rollouts in {batch.out}")
    if failed:
        raise BackendError(f"{failed} of {total} failed (see {batch.out}); running this again retries only them")


async def _ask(spec: EngineSpec, settings: Settings, question: Question, *, draw: bool) -> Rollout:
    console = stderr()
    async with _open_engine(spec, settings) as engine:
        on_stdout = draw and get_console().is_terminal
        if not on_stdout and not console.is_terminal:
            return await engine.ask(question, on_change=_step_log())
        # On stdout the last state drawn is the answer. On stderr the drawing disappears: stdout gets the answer.
        with Live(console=None if on_stdout else console, refresh_per_second=8, transient=not on_stdout) as live:
            return await engine.ask(
                question, on_change=lambda rollout: live.update(view.draw(rollout, width=live.console.width))
            )


async def _ask_all(spec: EngineSpec, batch: Batch, concurrency: int) -> Counter[str]:
    """Returns the number of rollouts by status."""
    counts: Counter[str] = Counter()
    async with _open_engine(spec, batch.settings) as engine:
        with progress_bar() as progress:
            task = progress.add_task("asking", total=len(batch.questions))
            async for rollout in batch.run(engine, concurrency=concurrency):
                counts[rollout.status] += 1
                progress.update(task, advance=1, description=f"asking ({counts['failed']} failed)")
    return counts


@asynccontextmanager
async def _open_engine(spec: EngineSpec, settings: Settings) -> AsyncGenerator[Engine, None]:
    """The engine; while it loads, a spinner on a terminal and plain lines elsewhere."""
    console = stderr()
    async with AsyncExitStack() as stack:
        with console.status("loading the model") as status:
            opening = spec.open(settings, say=status.update if console.is_terminal else say)
            engine = await stack.enter_async_context(opening)
        yield engine


def _step_log() -> Callable[[Rollout], None]:
    """Progress for a log: a line whenever the episode's current step changes."""
    last = ""

    def change(rollout: Rollout) -> None:
        nonlocal last
        if rollout.status == "running" and (line := view.current_step(rollout)) != last:
            say(line)
            last = line

    return change


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end; SIGTERM stops cleanly, as Ctrl-C does."""

    async def guarded() -> Any:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        say("paravt: stopped")
        sys.exit(143)
