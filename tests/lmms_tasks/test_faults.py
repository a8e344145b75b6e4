"""A server that drops, delays, breaks and refuses 30% of what it is asked: the answers are those of a sound one."""

import asyncio
from pathlib import Path

from lmms_tasks.sweep import SweepArm, sweep
from paravt_infer.backends.launch import SGLangServer
from paravt_infer.engine import EngineSpec
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from tests.fixtures.benchmark_questions import SHORT, items, outputs
from tests.fixtures.proxy import Proxy

KINDS = ["drop", "delay", "break", "503"]


async def swept(url: str, questions: list[Question], out: Path, *, concurrency: int = 4) -> list[Rollout]:
    arm = SweepArm(questions=questions, settings=SHORT, out=out)
    [rollouts] = await asyncio.to_thread(sweep, EngineSpec(servers=(url,)), [arm], concurrency=concurrency)
    return rollouts


async def test_faults_of_30_percent_of_all_requests_change_no_answer(
    server: SGLangServer, seven: Path, tmp_path: Path
) -> None:
    questions = [item.question for item in items(seven)[:20]]
    async with Proxy(server.url, faults=KINDS, share=0.3) as proxy:
        shaken = await swept(proxy.url, questions, tmp_path / "shaken")
        assert 0.15 < proxy.faulted / proxy.drawn < 0.45 and set(proxy.met) == set(KINDS)
    sound = await swept(server.url, questions, tmp_path / "sound")
    assert list(map(outputs, shaken)) == list(map(outputs, sound))
    assert {rollout.status for rollout in shaken} == {"answered"}
    assert sum(turn.attempts - 1 for rollout in shaken for turn in rollout.turns) >= 3  # and the record tells of it


async def test_what_fails_for_good_is_a_failure_and_is_asked_again(
    server: SGLangServer, seven: Path, tmp_path: Path
) -> None:
    questions = [item.question for item in items(seven)[:3]]
    async with Proxy(server.url, faults=["400"], every=4) as proxy:
        first = await swept(proxy.url, questions, tmp_path, concurrency=1)  # the second question's first turn
        proxy.every, asked = 0, proxy.seen
        again = await swept(proxy.url, questions, tmp_path)
        assert (asked, proxy.seen - asked) == (3 + 1 + 3, 3)  # two turns and a sub-agent an episode
    broken = first[1]
    assert (broken.status, broken.answer) == ("failed", None) and "answered 400" in str(broken.error)
    assert [rollout.status for rollout in again] == ["answered"] * 3
    assert [again[0].id, again[2].id] == [first[0].id, first[2].id]
