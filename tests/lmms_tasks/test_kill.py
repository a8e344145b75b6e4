"""Killed at twenty random moments and started again, a sweep ends as if nothing had happened."""

import asyncio
import multiprocessing
import random
from collections import Counter
from pathlib import Path

from lmms_tasks.sweep import JOURNAL, SweepArm, sweep
from paravt_infer.backends.launch import SGLangServer
from paravt_infer.engine import EngineSpec
from paravt_infer.journal import rollout_key
from paravt_infer.questions import Question
from paravt_infer.rollout_files import load_rollouts
from tests.fixtures.benchmark_questions import SHORT, items, outputs
from tests.fixtures.proxy import Proxy

KILLS = 20
CUT = {3, 11}
"""After these kills the journal's last line is cut in two: a kill in the middle of a write."""
CONCURRENCY = 4


def run(url: str, questions: list[Question], out: Path) -> None:
    """The sweep, in a process of its own."""
    sweep(EngineSpec(servers=(url,)), [SweepArm(questions=questions, settings=SHORT, out=out)], concurrency=CONCURRENCY)


def lines(journal: Path) -> int:
    """Episodes that are in the journal whole."""
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


async def test_a_sweep_killed_twenty_times_ends_as_an_undisturbed_one(
    server: SGLangServer, seven: Path, tmp_path: Path
) -> None:
    questions = [item.question for item in items(seven)[:45]]
    draw = random.Random(0)
    processes = multiprocessing.get_context("forkserver")  # each start is a fork of one that has imported everything
    processes.set_forkserver_preload(
        ["lmms_tasks.sweep", "torch", "transformers.models.auto", "transformers.models.qwen3_vl.configuration_qwen3_vl"]
    )
    repeated = 0
    async with Proxy(server.url) as proxy:

        def start(out: Path) -> multiprocessing.process.BaseProcess:
            process = processes.Process(target=run, args=(proxy.url, questions, out))
            process.start()
            return process

        async def end(process: multiprocessing.process.BaseProcess) -> None:
            while process.is_alive():
                await asyncio.sleep(0.01)
            assert process.exitcode == 0

        await end(start(tmp_path / "undisturbed"))
        undisturbed = list(load_rollouts(tmp_path / "undisturbed" / JOURNAL))
        assert len(undisturbed) == len(questions) == len(proxy.episodes) == 45

        out, journal = tmp_path / "killed", tmp_path / "killed" / JOURNAL
        size = (tmp_path / "undisturbed" / JOURNAL).stat().st_size
        for number, moment in enumerate(sorted(draw.sample(range(size * 85 // 100), KILLS))):
            begun, before = len(proxy.episodes), lines(journal)
            process = start(out)
            # Mid-episode, and as far as was drawn.
            while len(proxy.episodes) == begun or not journal.exists() or journal.stat().st_size < moment:
                assert process.is_alive()
                await asyncio.sleep(0.002)
            process.kill()
            process.join()
            await proxy.settled()
            lost = len(proxy.episodes) - begun - (lines(journal) - before)
            assert 0 <= lost <= CONCURRENCY  # what was under way, and nothing that had ended
            repeated += lost
            if number in CUT:
                text = journal.read_bytes()
                journal.write_bytes(text[: -len(text.splitlines()[-1]) // 2])
                repeated += 1
        await end(start(out))
        resumed = list(load_rollouts(journal))

        assert set(Counter(map(rollout_key, resumed)).values()) == {1}
        assert sorted(map(outputs, resumed)) == sorted(map(outputs, undisturbed))
        assert len(proxy.episodes) == 2 * len(questions) + repeated
