"""Questions of benchmarks answered by the engine's own episode loop: journaled, resumable, with running figures."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lmms_tasks.items import write_whole
from paravt_infer.backends import open_backend
from paravt_infer.engine import Engine
from paravt_infer.journal import Journal, ResumableRun
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_infer.settings import Settings
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.readers import get_reader
from paravt_infer.video.store import VideoStore

JOURNAL = "journal.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSpec:
    """What answers, and how it is reached."""

    model: str | None = None
    """Folder or hub id; the bundled checkpoint where neither it nor a server is named."""
    servers: tuple[str, ...] = ()
    """URLs of running servers, or of a router in front of them."""
    backend: str | None = None
    device: str | None = None
    reader: str = "pyav"

    @asynccontextmanager
    async def engine(self, settings: Settings) -> AsyncGenerator[Engine, None]:
        """A started engine, closed at the end.

        Raises:
            SettingsError: the names do not fit together.
        """
        get_reader(self.reader)
        opened = open_backend(backend=self.backend, model=self.model, servers=self.servers, device=self.device)
        async with Engine(opened, settings, frame_source=VideoStore(DecodePool(reader=self.reader))) as engine:
            yield engine


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """Questions to be asked in one way."""

    questions: Sequence[Question]
    settings: Settings
    out: Path
    """Gets the journal."""
    title: str = "asking"


def sweep(
    model: EngineSpec,
    arms: Sequence[Arm],
    *,
    concurrency: int = 8,
    block: int | None = None,
    describe: Callable[[Rollout], str] = lambda rollout: "",
) -> list[list[Rollout]]:
    """Each arm's rollouts, in its questions' order: those in its journal, and the others as they are answered.

    Args:
        block: arms take turns after so many questions, so that what slows the machine for a while slows them alike.
        describe: called with each rollout as it comes; returns what the progress line shows behind the counts.

    Raises:
        ParavtError: the model cannot be had. What fails in an episode is in its rollout.
    """
    return asyncio.run(_sweep(model, arms, concurrency, block, describe))


async def _sweep(
    model: EngineSpec, arms: Sequence[Arm], concurrency: int, block: int | None, describe: Callable[[Rollout], str]
) -> list[list[Rollout]]:
    console = Console(stderr=True)
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        *(TimeRemainingColumn(), TextColumn("{task.fields[said]}")),
    )
    async with model.engine(arms[0].settings) as engine:
        asked = [ResumableRun(engine, arm.questions, Journal(arm.out / JOURNAL), settings=arm.settings) for arm in arms]
        for arm, one in zip(arms, asked, strict=True):
            if one.reused:
                line = f"{arm.title}: {one.reused} of {len(one.questions)} are in {arm.out} already"
                console.print(line, highlight=False, markup=False, soft_wrap=True)
        longest = max(len(one.questions) for one in asked)
        step = block or max(1, longest)
        with Progress(*columns, console=console) as progress:
            bars = [
                progress.add_task(arm.title, total=len(one.questions), said="")
                for arm, one in zip(arms, asked, strict=True)
            ]
            failed = [0] * len(arms)
            for first in range(0, longest, step):
                for number, one in enumerate(asked):
                    part = slice(first, first + step)
                    async with aclosing(one.run(concurrency=concurrency, part=part)) as rollouts:
                        async for rollout in rollouts:
                            failed[number] += rollout.status == "failed"
                            told = [describe(rollout), f"{failed[number]} failed" if failed[number] else ""]
                            progress.update(bars[number], advance=1, said="  ".join(filter(None, told)))
        return [one.rollouts() for one in asked]


def write_run_info(out: Path, facts: dict[str, Any]) -> None:
    """Write how a run was made to `out`/run.json: settings, model, versions, time (UTC)."""
    facts = {"written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts}
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    write_whole(out / "run.json", lambda scratch: scratch.write_text(text, encoding="utf-8"))
