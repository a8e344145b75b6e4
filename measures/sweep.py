"""What a sweep costs beyond its episodes: ``python -m measures.sweep [--server URL] [--out docs/sweep.md]``.

- Wall time of a whole sweep divided by the sum of its episodes' critical paths, at concurrency 1, 8 and 64: ideally
  1, 1/8 and 1/64. The model is a stand-in that takes a fixed time per request; with --server, a real server too.
- Start-up: what lmms-eval takes by itself, and what the model plug-in adds.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lmms_tasks.fixture import write_tasks
from lmms_tasks.sweep import JOURNAL, SweepArm, sweep
from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.tasks.base import ALL_VIDEOS, VideoRoots
from measures.engine import TimedBackend, forced_settings
from measures.machine import describe_machine, markdown_table
from paravt_infer import Settings
from paravt_infer.backends.base import Backend
from paravt_infer.engine import EngineSpec
from paravt_infer.questions import Question
from paravt_infer.rollout_files import load_rollouts
from paravt_training.model.random_checkpoint import build_tiny
from paravt_training.world.benchmark_fixture import benchmark_rows, write_benchmarks

CONCURRENCIES = (1, 8, 64)
QUESTIONS_PER_SLOT = 4
MIN_QUESTIONS = 16
START_UP_SCRIPT = """
import json, sys, time
began = time.perf_counter()
import lmms_eval.evaluator, lmms_eval.tasks, lmms_eval.models
own = time.perf_counter()
Paravt = lmms_eval.models.get_model("paravt")
found = time.perf_counter()
model = Paravt(model=sys.argv[1], backend="transformers")
import asyncio
async def start():
    async with model.engine_spec.open(model.settings):
        return time.perf_counter()
started = asyncio.run(start())
print(json.dumps([own - began, found - own, started - found]))
"""
"""Seconds to import lmms-eval, to find the plug-in in it, and to start the engine on a tiny model in the process."""


class TimedSpec(EngineSpec):
    """The stand-in model in place of a real one."""

    def open_backend(self, say: Callable[[str], None] = print) -> Backend:
        return TimedBackend(str(self.model))


def distinct_questions(folder: Path, count: int) -> list[Question]:
    """Questions of the generated benchmarks with options, numbered, so that no two are the same."""
    tasks = [BENCHMARKS[name] for name in ("paravt_videomme", "paravt_lvbench", "paravt_longvideobench")]
    found = [
        one.item(doc, VideoRoots(folders={"": folder})).question for one in tasks for doc in benchmark_rows(one.name)
    ]
    return [
        one.model_copy(update={"id": str(number), "text": f"{number}. {one.text}"})
        for number, one in zip(range(count), itertools.cycle(found), strict=False)
    ]


def throughput(spec: EngineSpec, settings: Settings, folder: Path, concurrency: int) -> list[str]:
    """A line of the table: concurrency, questions, wall time, sum of critical paths, their ratio, the ideal ratio."""
    questions = distinct_questions(folder, max(MIN_QUESTIONS, QUESTIONS_PER_SLOT * concurrency))
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        [rollouts] = sweep(
            spec, [SweepArm(questions=questions, settings=settings, out=Path(out))], concurrency=concurrency
        )
        wall = time.perf_counter() - began
    failed = [rollout.error for rollout in rollouts if rollout.status != "answered"]
    if failed:
        sys.exit(f"{len(failed)} episodes failed: {failed[0]}")
    paths = sum(rollout.usage.critical_path_seconds for rollout in rollouts)
    figures = (f"{wall:.1f}", f"{paths:.1f}", f"{wall / paths:.4f}", f"{1 / concurrency:.4f}")
    return [str(concurrency), str(len(questions)), *figures, f"{wall * concurrency / paths:.2f}"]


def start_up(tiny: str, folder: Path) -> list[list[str]]:
    """Lines of the table: start-up times, medians of three."""
    environment = {**os.environ, ALL_VIDEOS: str(folder), "LMMS_EVAL_DATASETS_CACHE": str(folder / "cache")}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    scripts = Path(sys.executable).parent

    def run(*command: str) -> tuple[float, str]:
        began = time.perf_counter()
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
        return time.perf_counter() - began, done.stdout

    def seconds(*command: str) -> str:
        """A whole command, minus its only episode if it runs one into OUT."""
        taken = []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as out:
                took, _ = run(*(part.replace("OUT", out) for part in command))
                if (journal := Path(out, JOURNAL)).exists():
                    took -= next(load_rollouts(journal)).usage.seconds
            taken.append(took)
        return f"{statistics.median(taken):.1f} s"

    parts = [json.loads(run(sys.executable, "-c", START_UP_SCRIPT, tiny)[1]) for _ in range(3)]
    own, found, started = (f"{statistics.median(values):.1f} s" for values in zip(*parts, strict=True))
    include, short = str(folder / "tasks"), "frames=2,max_new_tokens=8"
    alone = (str(scripts / "lmms-eval"), "--tasks", "list")
    theirs = (
        *(str(scripts / "lmms-eval"), "--model", "paravt", "--tasks", "paravt_mlvu", "--limit", "1"),
        *("--model_args", f"model={tiny},backend=transformers,{short},out=OUT", "--include_path", include),
    )
    ours = (
        *(str(scripts / "paravt"), "eval", "--tasks", "paravt_mlvu", "--limit", "1", "--fixture", str(folder)),
        *("--model", tiny, "--backend", "transformers", "--out", "OUT"),
        *(part for pair in short.split(",") for part in ("--set", pair)),
    )
    return [
        ["`import lmms_eval.evaluator` and its models and tasks", own],
        ["finding the model paravt in it: imports of the adapter and the engine", found],
        ["starting the engine with a tiny model in the process (transformers)", started],
        ["`lmms-eval --tasks list`: lmms-eval by itself, its imports and task files", seconds(*alone)],
        ["`lmms-eval --model paravt`, one question, minus its episode", seconds(*theirs)],
        ["`paravt eval`, one question, minus its episode", seconds(*ours)],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", help="also measure on this SGLang server")
    parser.add_argument("--model", help="the server's model files, by default as it says")
    parser.add_argument("--note", default="", help="a sentence for the page, such as the machine's other load")
    parser.add_argument("--out", type=Path, help="write the tables here as Markdown")
    options = parser.parse_args()
    head = ["concurrency", "questions", "wall, s", "sum of critical paths, s", "ratio", "ideal", "ratio / ideal"]
    tables: list[tuple[str, Sequence[str], list[list[str]]]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_benchmarks(Path(scratch))
        write_tasks(folder)
        tiny = str(build_tiny(folder / "tiny"))
        sweep(
            TimedSpec(model=tiny),
            [SweepArm(questions=distinct_questions(folder, 1), settings=Settings(), out=folder / "warm")],
        )
        lines = [throughput(TimedSpec(model=tiny), Settings(), folder, concurrency) for concurrency in CONCURRENCIES]
        tables.append(("Stand-in model", head, lines))
        if options.server:
            server = EngineSpec(model=options.model, servers=(options.server,))
            lines = [throughput(server, forced_settings(), folder, concurrency) for concurrency in CONCURRENCIES]
            tables.append(("SGLang on the CPU, a tiny random checkpoint", head, lines))
        tables.append(("Start-up", ["what", "median of 3"], start_up(tiny, folder)))
    for title, columns, lines in tables:
        table = Table(*columns, title=title)
        for line in lines:
            table.add_row(*line)
        Console().print(table)
    if options.out:
        text = f"""# Sweep overhead

Measured with `python -m measures.sweep --server URL --out docs/sweep.md` on:
{describe_machine("torch", "transformers", "sglang", "lmms-eval", "av")}.
{options.note}
Wall time is the time of a whole sweep: engine, decoding, journal (each episode synced to disk) and progress display.
An episode's critical path is its longest chain of decoding and generation. The stand-in model takes the same time per
request, however many run at once. A server shares its cores, and the time an episode waits for it counts towards its
critical path. Every episode makes five calls in one turn.
"""
        parts = [f"\n## {title}\n\n{markdown_table(columns, lines)}" for title, columns, lines in tables]
        options.out.write_text(text + "".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
