"""Benchmark questions answered by the engine's episode loop: journaled, resumable, with running figures."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import TextColumn

from paravt_infer.console import progress_bar, say
from paravt_infer.engine import EngineSpec
from paravt_infer.files import write_text_atomic
from paravt_infer.journal import Journal, ResumableRun
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_infer.settings import Settings

JOURNAL = "journal.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepArm:
    """Questions and the settings to answer them with."""

    questions: Sequence[Question]
    settings: Settings
    out: Path
    """Folder of the journal."""
    title: str = "asking"


def sweep(
    spec: EngineSpec,
    arms: Sequence[SweepArm],
    *,
    concurrency: int = 8,
    block: int | None = None,
    describe: Callable[[Rollout], str] = lambda rollout: "",
) -> list[list[Rollout]]:
    """Each arm's rollouts, in its questions' order: those in its journal, and the others as they are answered.

    Args:
        block: arms take turns after this many questions, so that a slow phase of the machine affects them alike.
        describe: called with each rollout as it comes; returns what the progress line shows behind the counts.

    Raises:
        ParavtError: the model could not be loaded or reached. What fails in an episode is in its rollout.
    """
    return asyncio.run(_sweep(spec, arms, concurrency, block, describe))


async def _sweep(
    spec: EngineSpec,
    arms: Sequence[SweepArm],
    concurrency: int,
    block: int | None,
    describe: Callable[[Rollout], str],
) -> list[list[Rollout]]:
    async with spec.open(arms[0].settings, say=say) as engine:
        runs = [ResumableRun(engine, arm.questions, Journal(arm.out / JOURNAL), settings=arm.settings) for arm in arms]
        for arm, run in zip(arms, runs, strict=True):
            if run.reused:
                say(f"{arm.title}: {run.reused} of {len(run.questions)} are in {arm.out} already")
        longest = max(len(run.questions) for run in runs)
        step = block or max(1, longest)
        with progress_bar(TextColumn("{task.fields[status]}")) as progress:
            bars = [
                progress.add_task(arm.title, total=len(run.questions), status="")
                for arm, run in zip(arms, runs, strict=True)
            ]
            failed = [0] * len(arms)
            for first in range(0, longest, step):
                for index, run in enumerate(runs):
                    part = slice(first, first + step)
                    async with aclosing(run.run(concurrency=concurrency, part=part)) as rollouts:
                        async for rollout in rollouts:
                            failed[index] += rollout.status == "failed"
                            status = [describe(rollout), f"{failed[index]} failed" if failed[index] else ""]
                            progress.update(bars[index], advance=1, status="  ".join(filter(None, status)))
        return [run.rollouts() for run in runs]


def write_run_info(out: Path, facts: dict[str, Any]) -> None:
    """Write how a run was made to `out`/run.json: settings, model, versions, time (UTC)."""
    facts = {"written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts}
    write_text_atomic(out / "run.json", json.dumps(facts, indent=1, sort_keys=True) + "\n")
