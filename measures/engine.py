"""The engine's own overhead: ``python -m measures.engine [--server URL] [--out docs/measures.md]``.

- Episode wall time over its critical path (the longest chain of decoding and generation) with 1, 8 and 64 concurrent
  episodes: 1.00 is a loop without any overhead. The model is a stand-in that takes a fixed time per request, so that
  only the engine is measured; with --server, a real server too.
- Decodes for a group of 8 episodes on one video.
- Start-up times.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from measures.machine import describe_machine, markdown_table
from paravt_infer import Engine, Question, Settings, open_backend
from paravt_infer.backends.base import Backend, Generation, Request, processor_sizing
from paravt_infer.model import load_model_files
from paravt_infer.video.sampling import FrameSizing
from paravt_training.model.random_checkpoint import build_tiny
from paravt_training.world.numbered_video import write_numbered_video

MAIN_SECONDS, SUB_SECONDS = 0.4, 0.3
CALL = '<tool_call>{{"name": "crop_video", "arguments": {{"start_time": {}, "end_time": {}}}}}</tool_call>'
CALLS = "".join(CALL.format(start, start + 4) for start in (2, 9, 16, 23, 30))
EPISODES = (1, 8, 64)


class TimedBackend(Backend):
    """Every request takes a fixed time and any number run at once: the rest of the wall time is the engine's."""

    name = "timed"
    exact_tokens = True

    def __init__(self, model: str):
        self.model = model

    async def start(self) -> None:
        self._files = load_model_files(self.model)
        self.chat = self._files.chat

    def frame_sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        return processor_sizing(
            multiple=self._files.multiple, floor=1, ceiling=1 << 30, min_pixels=min_pixels, max_pixels=max_pixels
        )

    async def generate(self, request: Request) -> Generation:
        assert self.chat is not None
        main = bool(request.affinity)
        answers = any(message.role == "tool" for message in request.messages)
        text = ("<answer>B</answer>" if answers else CALLS) if main else "a red circle from 3.0 to 5.0 s."
        await asyncio.sleep(MAIN_SECONDS if main else SUB_SECONDS)
        ids = [*self.chat.encode_text(text), self.chat.end_ids[0]]
        return Generation(ids=ids, text=text, finish="stop", prompt_tokens=len(request.ids))


def _questions(videos: list[str]) -> list[Question]:
    options = {"A": "a", "B": "b"}
    return [Question(video=video, text=f"Which, {n}?", options=options) for n, video in enumerate(videos)]


async def overhead(backend: Backend, settings: Settings, videos: list[str], episodes: int) -> tuple[float, float]:
    """The median over episodes of wall time over critical path, and episodes per second."""
    questions = _questions([videos[n % len(videos)] for n in range(episodes)])
    async with Engine(backend, settings) as engine:
        await engine.ask(questions[0])  # warms up workers and the caches of a server
        began = time.perf_counter()
        rollouts = [rollout async for rollout in engine.ask_many(questions, concurrency=episodes)]
        wall = time.perf_counter() - began
    failed = [rollout.error for rollout in rollouts if rollout.status != "answered"]
    if failed:
        sys.exit(f"{len(failed)} episodes failed: {failed[0]}")
    return statistics.median(r.usage.seconds / r.usage.critical_path_seconds for r in rollouts), episodes / wall


async def group_decodes(backend: Backend, video: str) -> tuple[int, int]:
    """Decodes and requests for frames (overview and windows) of 8 episodes with the same calls on one video."""
    async with Engine(backend) as engine:
        rollouts = [rollout async for rollout in engine.ask_many(_questions([video] * 8), concurrency=8)]
        return engine.frame_source.pool.decodes, sum(1 + len(rollout.evidence) for rollout in rollouts)


def start_up_seconds(*command: str) -> float:
    """The median seconds of a whole process, over 9 runs after a warm-up."""
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def forced_settings() -> Settings:
    """Settings that force a random model on a real server to make five calls and answer."""
    import re

    calls = re.sub(r"([{}().?*+|\[\]^$\\])", r"\\\1", CALLS)
    return Settings(
        turn_regex=(calls, "<answer>[AB]</answer>"), summary_tokens=32, max_new_tokens=600, frames=8, window_frames=4
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", help="also measure on this SGLang server")
    parser.add_argument("--out", type=Path, help="write the tables to this file as Markdown")
    options = parser.parse_args()
    console = Console()
    rows: list[list[str]] = []

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        tiny = str(build_tiny(folder / "tiny"))
        videos = [str(write_numbered_video(folder / f"{n}.mp4", frames=400, fps=10, size=(320, 192))) for n in range(8)]
        for episodes in EPISODES:
            ratio, rate = asyncio.run(overhead(TimedBackend(tiny), Settings(), videos, episodes))
            rows.append([f"wall / critical path, {episodes} episodes (stand-in model)", f"{ratio:.3f}", "at most 1.05"])
            rows.append([f"episodes per second, {episodes} concurrent (stand-in model)", f"{rate:.1f}", ""])
        if options.server:
            for episodes in EPISODES:
                backend = open_backend(servers=[options.server], model=tiny)
                ratio, rate = asyncio.run(overhead(backend, forced_settings(), videos, episodes))
                rows.append([f"wall / critical path, {episodes} episodes (SGLang)", f"{ratio:.3f}", "at most 1.05"])
                rows.append([f"episodes per second, {episodes} concurrent (SGLang)", f"{rate:.2f}", ""])
        decodes, requests = asyncio.run(group_decodes(TimedBackend(tiny), videos[0]))
        rows.append(["decodes of the overview for 8 episodes on one video", str(decodes - 5), "1"])
        rows.append(
            [f"decodes for the {requests} frame requests of those episodes (1 overview, 5 windows)", str(decodes), "6"]
        )
    paravt = str(Path(sys.executable).with_name("paravt"))
    rows.append(["`paravt --help`", f"{start_up_seconds(paravt, '--help'):.2f} s", "at most 0.3 s"])
    rows.append(
        [
            "`import paravt_infer`",
            f"{start_up_seconds(sys.executable, '-c', 'import paravt_infer'):.2f} s",
            "at most 0.5 s",
        ]
    )
    rows.append(["(`python -c pass`, for comparison)", f"{start_up_seconds(sys.executable, '-c', 'pass'):.2f} s", ""])

    table = Table("measure", "value", "goal")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if options.out:
        text = f"""# Engine overhead

Measured with `python -m measures.engine --server URL --out docs/measures.md` on:
{describe_machine("torch", "transformers", "sglang", "av")}.
Every episode makes five calls in one turn. The stand-in model takes {MAIN_SECONDS} s per main turn and {SUB_SECONDS} s
per sub-agent, however many run at once. The server is an unmodified SGLang on the CPU with a tiny random checkpoint.
For frames per second by reader, see [readers.md](readers.md).

"""
        options.out.write_text(text + markdown_table(["measure", "value", "goal"], rows))


if __name__ == "__main__":
    main()
