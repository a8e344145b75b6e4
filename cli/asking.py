"""What `paravt ask` does once its options are read: opens a backend, runs, shows, prints."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from paravt_cli import view
from paravt_infer import rollout_files as rollouts
from paravt_infer.backends import open_backend
from paravt_infer.batch import Batch
from paravt_infer.engine import Engine
from paravt_infer.errors import BackendError, SettingsError
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout, rollout_to_json
from paravt_infer.settings import Settings
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.readers import get_reader
from paravt_infer.video.store import VideoStore

BUNDLED = "the bundled checkpoint answered: it knows the sample world alone; for other videos name a model with --model"


class Asking:
    """One call of `paravt ask`."""

    def __init__(
        self,
        *,
        values: dict[str, Any],
        system_prompt: str,
        backend: str | None,
        model: str | None,
        servers: Sequence[str],
        device: str | None,
        reader: str,
    ):
        self.hints = [] if model or servers else [BUNDLED]
        if system_prompt:
            values = {**values, "system_prompt": _text(system_prompt)}
        self.settings = Settings.make(**values)
        get_reader(reader)  # a wrong name is told before anything is loaded
        self.reader = reader
        self.device = device
        self.model, self.servers, self.backend = model, list(servers), backend
        self.out, self.err = Console(), Console(stderr=True)

    def one(
        self,
        video: str,
        text: str,
        options: list[str],
        subtitles: str | None,
        *,
        as_json: bool,
        save: str | None,
    ) -> None:
        """Ask one question; exit code 1 where there is no answer."""
        question = Question.make(video=video, text=text, options=options, subtitles=subtitles)
        if save:
            _check_ending(save)
        rollout = _run(self._one(question, draw=not as_json))
        if save:
            rollouts.save_rollouts(rollout, save)
        if as_json:
            print(rollout_to_json(rollout))
        elif not self.out.is_terminal and rollout.answer is not None:
            print(rollout.answer)
        notes = self.hints + rollout.backend.notes
        for note in notes:
            self.err.print(f"note: {note}", style="dim", markup=False, highlight=False, soft_wrap=True)
        if rollout.status == "failed":
            raise BackendError(rollout.error or "the episode failed")
        if rollout.answer is None:
            last = " ".join(rollout.turns[-1].response.split())[-120:] if rollout.turns else ""
            raise BackendError(f"the model gave no answer that can be read; its last words: {last!r}")

    async def _one(self, question: Question, *, draw: bool) -> Rollout:
        async with self._engine() as engine:
            on_terminal = draw and self.out.is_terminal
            if not on_terminal and not self.err.is_terminal:
                return await engine.ask(question, on_change=_Log(self.err).change)
            console = self.out if on_terminal else self.err
            # In a pipe the view is gone when the answer comes; on a terminal its last state is the answer.
            with Live(console=console, refresh_per_second=8, transient=not on_terminal) as live:

                def redraw(rollout: Rollout) -> None:
                    live.update(view.draw(rollout, width=console.width))

                return await engine.ask(question, on_change=redraw)

    def many(self, file: str, out: str, concurrency: int) -> None:
        """Ask a file of questions; exit code 1 where one failed."""
        batch = Batch(Path(file), Path(out), self.settings)
        failed, unanswered = _run(self._many(batch, concurrency))
        done = len(batch.questions)
        line = f"{done} questions, {done - failed - unanswered} answered"
        line += f", {unanswered} without an answer" if unanswered else ""
        self.err.print(f"{line}; rollouts in {out}", highlight=False)
        if failed:
            raise BackendError(f"{failed} of {done} failed; {out} says why, and running this again retries only them")

    async def _many(self, batch: Batch, concurrency: int) -> tuple[int, int]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        counts = {"failed": 0, "no_answer": 0}
        async with self._engine() as engine:
            with Progress(*columns, console=self.err) as progress:
                task = progress.add_task("asking", total=len(batch.questions))
                async for rollout in batch.run(engine, concurrency=concurrency):
                    if rollout.status in counts:
                        counts[rollout.status] += 1
                    progress.update(task, advance=1, description=f"asking ({counts['failed']} failed)")
        return counts["failed"], counts["no_answer"]

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[Engine]:
        """The engine, its start shown: loading a model takes more than two seconds."""
        with self.err.status("loading the model", spinner="dots") as status:

            def say(line: str) -> None:
                status.update(line)
                if not self.err.is_terminal:
                    self.err.print(line, highlight=False, markup=False, soft_wrap=True)

            if not self.err.is_terminal:
                say(f"loading {self.model or ''.join(self.servers[:1]) or 'the bundled checkpoint'}")
            backend = open_backend(
                backend=self.backend,
                model=self.model,
                servers=self.servers,
                device=self.device,
                say=say,
            )
            engine = Engine(backend, self.settings, frame_source=VideoStore(DecodePool(reader=self.reader)))
            await engine.__aenter__()
        try:
            yield engine
        finally:
            await engine.close()


class _Log:
    """Progress for a log: a line whenever what is going on changes."""

    def __init__(self, console: Console):
        self.console = console
        self.last = ""

    def change(self, rollout: Rollout) -> None:
        line = view.doing(rollout)
        if rollout.status == "running" and line != self.last:
            self.console.print(line, highlight=False, markup=False)
            self.last = line


def _run(work: Any) -> Any:
    """Run to the end; SIGTERM stops cleanly, as Ctrl-C does."""

    async def guarded() -> Any:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        print("paravt: stopped", file=sys.stderr)
        sys.exit(143)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: the system prompt cannot be read ({error})") from None


def _check_ending(path: str) -> None:
    if Path(path).suffix not in (".json", ".jsonl", ".parquet"):
        raise SettingsError(f"--save {path}: name a .json, .jsonl or .parquet file")
