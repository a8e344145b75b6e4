"""A server that drops, delays, breaks and refuses 30% of what it is asked: the answers are those of a sound one."""

import asyncio
from pathlib import Path

from asked import SHORT, items, said
from proxy import Proxy

from lmms_tasks.sweep import Arm, Model, sweep
from paravt_infer.backends.launch import Server
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout

KINDS = ["drop", "delay", "break", "503"]


async def swept(url: str, questions: list[Question], out: Path) -> list[Rollout]:
    arm = Arm(questions=questions, settings=SHORT, out=out)
    [rollouts] = await asyncio.to_thread(sweep, Model(servers=(url,)), [arm], concurrency=4)
    return rollouts


async def test_faults_of_a_third_of_all_requests_change_no_answer(server: Server, seven: Path, tmp_path: Path) -> None:
    questions = [item.question for item in items(seven)[:20]]
    async with Proxy(server.url, faults=KINDS, share=0.3) as proxy:
        shaken = await swept(proxy.url, questions, tmp_path / "shaken")
        assert 0.2 < proxy.faulted / sum(proxy.asked.values()) < 0.4
        assert min(proxy.met[kind] for kind in KINDS) >= 3
    sound = await swept(server.url, questions, tmp_path / "sound")
    assert list(map(said, shaken)) == list(map(said, sound))
    assert {rollout.status for rollout in shaken} == {"answered"}
    assert sum(turn.attempts - 1 for rollout in shaken for turn in rollout.turns) >= 10  # and the record tells of it


async def test_what_fails_for_good_is_a_failure_and_is_asked_again(server: Server, seven: Path, tmp_path: Path) -> None:
    questions = [item.question for item in items(seven)[:3]]
    async with Proxy(server.url, faults=["400"], every=4) as proxy:
        first = await swept(proxy.url, questions, tmp_path)
        proxy.every = 0
        asked = proxy.seen
        again = await swept(proxy.url, questions, tmp_path)
        asked_again = proxy.seen - asked
    broken = [rollout for rollout in first if rollout.status == "failed"]
    assert broken and all(rollout.answer is None and "answered 400" in str(rollout.error) for rollout in broken)
    assert {rollout.status for rollout in again} == {"answered"}
    assert asked_again == 3 * len(broken)  # two turns and a sub-agent each
    kept = [rollout.id for rollout in first if rollout.status == "answered"]
    assert [rollout.id for rollout in again if rollout.id in kept] == kept
