"""The SGLang backend against a real server: cache, overlap, abort, several servers, and faults on the way."""

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from paravt_infer import Engine, Rollout, Settings
from paravt_infer.backends import Backend
from paravt_infer.backends.launch import SGLangServer
from paravt_infer.backends.sglang import SGLangBackend
from paravt_infer.errors import BackendError, ModelError
from tests.fixtures.proxy import Proxy
from tests.fixtures.requests import request
from tests.fixtures.responses import answer_form, calls_form

FIVE = ((1, 4), (8, 11), (15, 18), (22, 25), (29, 32))


async def ask(server: str | list[str], video: str, **settings: Any) -> Rollout:
    values: dict[str, Any] = {"turn_regex": (calls_form(*FIVE), answer_form("AB")), "summary_tokens": 40, **settings}
    servers = [server] if isinstance(server, str) else server
    async with Engine(SGLangBackend(servers), Settings(**values)) as engine:
        return await engine.ask(video, "Which?", options=["red", "blue"])


async def test_a_second_turns_prefix_is_served_from_the_cache(server: SGLangServer, video: str) -> None:
    rollout = await ask(server.url, video)
    first, second = rollout.turns
    assert second.cached_tokens is not None
    # All of the first turn but its last token, whose state the server had no reason to compute.
    assert second.cached_tokens >= first.prompt_tokens + len(first.output_ids) - 2
    assert rollout.usage.cached_tokens >= second.cached_tokens


async def test_the_server_was_fed_the_ids_that_are_recorded(server: SGLangServer, video: str) -> None:
    """The server's own count and its cache agree with the recorded ids, fed again from the record alone."""
    rollout = await ask(server.url, video)
    expanded = len(rollout.input_ids(1)) - len(rollout.overview) + sum(frame.tokens for frame in rollout.overview)
    assert rollout.turns[1].prompt_tokens == expanded


async def test_frames_are_no_larger_than_the_models_own_processor_takes(
    server: SGLangServer, tiny: Path, tmp_path: Path
) -> None:
    """As in process: a server that is started to leave larger frames alone would hand on what was never trained on."""
    small = tmp_path / "small"
    shutil.copytree(tiny, small)
    settings = json.loads((small / "preprocessor_config.json").read_text())
    settings["size"] = {"shortest_edge": 4096, "longest_edge": 4096}
    (small / "preprocessor_config.json").write_text(json.dumps(settings))
    backend = SGLangBackend([server.url], model=str(small))
    await backend.start()
    assert backend.frame_sizing(784, 50176).max_pixels == 4096
    await backend.close()


async def test_five_sub_agents_run_at_the_same_time(server: SGLangServer, video: str) -> None:
    """Greedy, this model never ends a summary before its limit; asked again, no decoding stands between the five."""
    settings = Settings(turn_regex=(calls_form(*FIVE), answer_form("AB")), summary_tokens=300, window_frames=2)
    async with Engine(SGLangBackend([server.url]), settings) as engine:
        await engine.ask(video, "Which?", options=["red", "blue"])
        rollout = await engine.ask(video, "Which?", options=["red", "blue"])
    subs = [call.sub_agent for call in rollout.evidence if call.sub_agent is not None]
    assert [len(sub.output_ids) for sub in subs] == [300] * 5
    last_start = max(sub.started for sub in subs)
    first_end = min(sub.started + sub.seconds for sub in subs)
    assert last_start < first_end


async def test_the_weight_version_is_in_the_record_and_follows_the_server(
    server: SGLangServer, video: str, tiny: Path
) -> None:
    def update(version: str) -> None:
        httpx.post(server.url + "/flush_cache?timeout=60", timeout=90)  # waits until it is idle
        body = {"model_path": str(tiny), "weight_version": version}
        httpx.post(server.url + "/update_weights_from_disk", json=body, timeout=60).raise_for_status()

    before = await ask(server.url, video)
    await asyncio.to_thread(update, "step-1")
    try:
        after = await ask(server.url, video)
    finally:
        await asyncio.to_thread(update, "default")
    assert {turn.weight_version for turn in before.turns} == {"default"}
    assert {turn.weight_version for turn in after.turns} == {"step-1"}
    assert {call.sub_agent.weight_version for call in after.evidence if call.sub_agent} == {"step-1"}


async def test_a_cancelled_generation_is_aborted_on_the_server(server: SGLangServer, sglang: Backend) -> None:
    async def running() -> float:
        async with httpx.AsyncClient() as client:
            metrics = (await client.get(server.url + "/metrics")).text
        found = re.findall(r"^sglang:num_running_reqs\{.*\} ([\d.e+]+)$", metrics, re.MULTILINE)
        return sum(map(float, found))

    async def until(wanted: float) -> None:
        while await running() != wanted:
            await asyncio.sleep(0.05)

    endless = request(sglang, text="endless", regex="[a-z]{15000}", max_new_tokens=15000)
    task = asyncio.create_task(sglang.generate(endless))
    await asyncio.wait_for(until(1), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(until(0), 60)


async def test_faults_of_the_way_are_got_over(server: SGLangServer, video: str) -> None:
    """Connections that break, 500s and broken answers: asked again, and the result is as without them."""
    async with Proxy(server.url, faults=["drop", "500", "garbage"], every=2) as proxy:
        rollout = await ask(proxy.url, video)
        assert proxy.faulted >= 2
    plain = await ask(server.url, video)
    assert [turn.output_ids for turn in rollout.turns] == [turn.output_ids for turn in plain.turns]
    assert [call.text for call in rollout.evidence] == [call.text for call in plain.evidence]
    assert max(turn.attempts for turn in rollout.turns) + max(
        call.sub_agent.attempts for call in rollout.evidence if call.sub_agent
    ) > 2  # fmt: skip


async def test_a_4xx_is_never_asked_again(server: SGLangServer, video: str) -> None:
    async with Proxy(server.url, faults=["400"], every=1) as proxy:
        rollout = await ask(proxy.url, video)
        assert proxy.seen == 1
    assert (rollout.status, rollout.answer) == ("failed", None)
    assert "answered 400" in (rollout.error or "")


async def test_a_request_that_fails_for_good_is_an_error_in_the_record(server: SGLangServer, video: str) -> None:
    async with Proxy(server.url, faults=["500"], every=1) as proxy:
        rollout = await ask(proxy.url, video)
        assert proxy.seen == 5
    assert (rollout.status, rollout.answer) == ("failed", None)
    assert "answered 500" in (rollout.error or "")


async def test_several_servers_share_the_load_and_an_episode_stays_on_one(server: SGLangServer, video: str) -> None:
    async with Proxy(server.url) as left, Proxy(server.url) as right:
        backend = SGLangBackend([left.url, right.url])
        settings = Settings(turn_regex=(calls_form(*FIVE), answer_form("AB")), summary_tokens=40)
        async with Engine(backend, settings) as engine:
            rollouts = await asyncio.gather(*(engine.ask(video, "Which?", options=["a", "b"]) for _ in range(4)))
    assert {rollout.status for rollout in rollouts} == {"answered"}
    assert all(len({turn.server for turn in rollout.turns}) == 1 for rollout in rollouts)
    assert {turn.server for rollout in rollouts for turn in rollout.turns} == {left.url, right.url}


async def test_a_server_that_is_down_is_one_line() -> None:
    with pytest.raises(BackendError, match=r"http://127.0.0.1:9 cannot be reached .* is the server running\?"):
        await SGLangBackend(["http://127.0.0.1:9"]).start()


async def test_a_server_whose_model_files_are_not_here_is_one_line(server: SGLangServer) -> None:
    with pytest.raises(ModelError, match=r"/nowhere: no such model folder.*give the path of its files with --model"):
        await SGLangBackend([server.url], model="/nowhere").start()


async def test_the_servers_context_limit_is_read(sglang: Backend) -> None:
    assert sglang.context_limit == 16384


async def test_a_server_that_ends_at_start_up_is_told_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "launch_server.py").write_text("raise SystemExit('no CUDA here')")
    doomed = SGLangServer("some/model", environment={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(BackendError, match=r"exited at start-up \(no CUDA here\); see .*\.log"):
        await doomed.start()
    doomed.stop()
