"""Weights change under a backend: no generation mixes two, each token names its own, no old cache serves new ones."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from paravt_infer.backends import Backend
from paravt_infer.backends.base import Generation
from paravt_infer.backends.broadcast import WeightBroadcastGroup
from paravt_infer.backends.launch import SGLangServer
from paravt_infer.backends.openai import OpenAIBackend
from paravt_infer.backends.rwlock import ReadWriteLock
from paravt_infer.backends.sglang import SGLangBackend
from paravt_infer.backends.transformers import TransformersBackend
from paravt_infer.errors import BackendError
from paravt_infer.model import load_pretrained
from tests.fixtures.proxy import Proxy
from tests.fixtures.requests import request

MODEL = "AutoModelForImageTextToText"


@pytest.fixture(scope="session")
def changed(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint with all weights moved, the vision tower's too, as a training step moves them."""
    folder = tmp_path_factory.mktemp("changed")
    for file in tiny.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    network: Any = load_pretrained(str(tiny), MODEL, dtype="auto")
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight += torch.randn_like(weight) * 0.02
    network.save_pretrained(folder)
    return folder


@pytest.fixture
async def sglang_restored(server: SGLangServer, tiny: Path) -> AsyncIterator[SGLangBackend]:
    """The shared server, given back with the weights it came with."""
    backend = SGLangBackend([server.url])
    await backend.start()
    yield backend
    await backend.update_weights("default", folder=tiny)
    await backend.close()


async def greedy(backend: Backend, text: str = "What is it?") -> Generation:
    """Letters enough for two models to part, about frames that every call shows again."""
    return await backend.generate(request(backend, text=text, regex="[a-z ]{40}", max_new_tokens=60, logprobs=True))


def same(left: Generation, right: Generation) -> bool:
    assert left.logprobs is not None and right.logprobs is not None
    return left.ids == right.ids and np.abs(np.array(left.logprobs) - np.array(right.logprobs)).max() < 0.01


async def with_weights(folder: Path) -> Generation:
    """What a model that was loaded from `folder` says."""
    backend = TransformersBackend(str(folder), device="cpu")
    await backend.start()
    try:
        return await greedy(backend)
    finally:
        await backend.close()


def given(folder: Path, by: str) -> dict[str, Any]:
    """A folder's weights as `update_weights` takes them."""
    return {by: folder if by == "folder" else load_pretrained(str(folder), MODEL, dtype="auto").state_dict()}


# The gate


async def test_the_gate_closes_when_all_are_out_and_keeps_later_ones_waiting() -> None:
    gate, told = ReadWriteLock(), []
    leave, done = asyncio.Event(), asyncio.Event()

    async def inside() -> None:
        async with gate.reading():
            told.append("in")
            await leave.wait()
            told.append("out")

    async def change() -> None:
        async with gate.writing():
            told.append("changing")
            await done.wait()
            told.append("changed")

    early = [asyncio.create_task(inside()) for _ in range(2)]
    await asyncio.sleep(0)
    changing = asyncio.create_task(change())
    await asyncio.sleep(0)
    late = asyncio.create_task(inside())
    await asyncio.sleep(0)
    assert told == ["in", "in"]
    leave.set()
    await asyncio.gather(*early)
    done.set()
    await asyncio.gather(changing, late)
    assert told == ["in", "in", "out", "out", "changing", "changed", "in", "out"]


async def test_changes_come_one_after_the_other_and_one_that_fails_opens_the_gate() -> None:
    gate, told = ReadWriteLock(), []

    async def change(name: str) -> None:
        async with gate.writing():
            told.append(name)
            await asyncio.sleep(0)
            told.append(name)
            raise BackendError(name)

    assert all(await asyncio.gather(change("a"), change("b"), return_exceptions=True))
    assert told == ["a", "a", "b", "b"]
    async with gate.reading():
        pass


async def test_one_that_gives_up_waiting_does_not_hold_the_gate() -> None:
    gate = ReadWriteLock()
    async with gate.writing():
        waiting = asyncio.create_task(gate.reading().__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with gate.writing():
        pass


# In process


@pytest.mark.parametrize("by", ["folder", "tensors"])
async def test_new_weights_speak_and_every_token_names_its_own(in_process: Backend, changed: Path, by: str) -> None:
    before = await greedy(in_process)
    await in_process.update_weights("7", **given(changed, by))
    after = await greedy(in_process)
    assert (before.weight_version, after.weight_version) == (None, "7")
    assert same(after, await with_weights(changed)) and not same(before, after)


async def test_a_generation_under_way_ends_under_its_own_weights(in_process: Backend, changed: Path) -> None:
    alone = await greedy(in_process)
    running = asyncio.create_task(greedy(in_process))
    while not in_process.batch_sizes[1:]:  # type: ignore[attr-defined]
        await asyncio.sleep(0.001)
    await in_process.update_weights("1", folder=changed)
    assert running.done() and same(running.result(), alone) and running.result().weight_version is None


async def test_weights_that_do_not_fit_are_one_line(in_process: Backend) -> None:
    with pytest.raises(BackendError, match=r"the new weights do not fit \(.*Missing key") as told:
        await in_process.update_weights("1", tensors={"lm_head.weight": torch.zeros(2, 2)})
    assert "\n" not in str(told.value)
    with pytest.raises(BackendError, match="new weights need a folder or tensors"):
        await in_process.update_weights("1")


async def test_a_backend_that_cannot_says_what_can(tiny: Path) -> None:
    backend = OpenAIBackend(["http://127.0.0.1:9"])
    with pytest.raises(BackendError, match="backend openai cannot change its weights; train with sglang or transform"):
        await backend.update_weights("1", folder=tiny)
    await backend.close()


# The real SGLang server


@pytest.mark.parametrize("by", ["folder", "tensors"])
async def test_the_server_speaks_with_new_weights_and_from_no_cache_of_the_old_ones(
    sglang_restored: SGLangBackend, changed: Path, by: str
) -> None:
    """The frames were looked at before: neither their prefix nor what the vision tower made of them may serve again."""
    backend = sglang_restored
    before = await greedy(backend)
    again = await greedy(backend, "What is it now?")
    assert again.cached_tokens is not None and again.cached_tokens > before.visual_tokens  # the prefix is cached
    await backend.update_weights("7", **given(changed, by))
    after = await greedy(backend)
    assert (after.weight_version, after.cached_tokens) == ("7", 0)
    assert same(after, await with_weights(changed)) and not same(before, after)
    cached = await greedy(backend, "What is it now?")
    assert cached.weight_version == "7" and cached.cached_tokens > before.visual_tokens  # type: ignore[operator]


async def test_the_server_ends_what_is_under_way_first(sglang_restored: SGLangBackend, changed: Path) -> None:
    old = await greedy(sglang_restored)
    asked = request(sglang_restored, regex="[a-z ]{40}", max_new_tokens=60, logprobs=True)
    running = [
        asyncio.create_task(sglang_restored.generate(dataclasses.replace(asked, id=f"under-way-{n}"))) for n in range(3)
    ]
    await asyncio.sleep(0)
    update = asyncio.create_task(sglang_restored.update_weights("8", folder=changed))
    await asyncio.sleep(0)
    later = await greedy(sglang_restored)
    assert update.done() and all(task.done() for task in running)
    assert all(same(task.result(), old) and task.result().weight_version != "8" for task in running)
    assert later.weight_version == "8"


def test_each_server_has_a_rank_for_each_of_its_gpus() -> None:
    group = WeightBroadcastGroup({"http://localhost:1": 1, "http://127.0.0.1:2": 2}, device="cuda")
    told = dict(group.join_requests())
    assert [told[url]["rank_offset"] for url in group.servers] == [1, 2]
    assert {(body["world_size"], body["backend"], body["master_address"]) for body in told.values()} == {
        (4, "nccl", "127.0.0.1")
    }
    assert len({(body["group_name"], body["master_port"]) for body in told.values()}) == 1


async def test_a_server_that_does_not_take_part_in_a_broadcast_is_one_line(server: SGLangServer) -> None:
    """A router, say, that knows nothing of it."""

    class Unknowing(Proxy):
        async def _answer(self, *asked: Any) -> tuple[int, bytes]:
            refuses = "/begin_weight_update" in asked
            return (404, b"no such path") if refuses else await super()._answer(*asked)

    async with Unknowing(server.url) as proxy:
        backend = SGLangBackend([proxy.url])
        await backend.start()
        with pytest.raises(BackendError, match="404") as told:
            await backend.update_weights("3", tensors={"lm_head.weight": torch.zeros(2, 2)})
        await backend.close()
    assert "\n" not in str(told.value)


async def test_a_broadcasts_group_is_given_back(
    server: SGLangServer, sglang_restored: SGLangBackend, changed: Path
) -> None:
    backend = SGLangBackend([server.url])
    await backend.start()
    await backend.update_weights("5", **given(changed, "tensors"))
    assert backend._group is not None
    name = backend._group.name
    await backend.close()
    reply = httpx.post(f"{server.url}/destroy_weights_update_group", json={"group_name": name}, timeout=60)
    assert "does not exist" in reply.json()["message"]


def test_servers_elsewhere_are_told_the_address_that_they_reach_us_at() -> None:
    """Not the machine's name, which often stands for 127.0.1.1."""
    group = WeightBroadcastGroup({"http://localhost:1": 1, "http://127.0.1.77:2": 1}, device="cpu")
    assert group.address == "127.0.0.1"
    with pytest.raises(BackendError, match=r"http://no\.such\.host\.invalid: no route to this host"):
        WeightBroadcastGroup({"http://no.such.host.invalid": 1}, device="cpu")


async def test_all_servers_get_the_weights(server: SGLangServer, sglang_restored: SGLangBackend, changed: Path) -> None:
    async with Proxy(server.url) as left, Proxy(server.url) as right:
        backend = SGLangBackend([left.url, right.url])
        await backend.start()
        await backend.update_weights("9", folder=changed)
        said = await asyncio.gather(*(greedy(backend, text) for text in ("one", "two")))
        await backend.close()
        assert left.seen == right.seen == 1
    assert {one.weight_version for one in said} == {"9"}


async def test_a_server_that_goes_on_with_another_version_is_an_error(server: SGLangServer, tiny: Path) -> None:
    """A router, say, that promises the update and never passes it on."""

    class Forgetful(Proxy):
        async def _answer(self, *asked: Any) -> tuple[int, bytes]:
            forgets = "/update_weights_from_disk" in asked
            return (200, b'{"success": true}') if forgets else await super()._answer(*asked)

    async with Forgetful(server.url) as proxy:
        backend = SGLangBackend([proxy.url])
        await backend.start()
        with pytest.raises(BackendError, match=r"reports weight version default, not 3"):
            await backend.update_weights("3", folder=tiny)
        await backend.close()


async def test_a_folder_that_the_server_cannot_read_is_one_line(sglang: Backend, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=rf"(?i){tmp_path}/none|answered 400") as told:
        await sglang.update_weights("4", folder=tmp_path / "none")
    assert "\n" not in str(told.value)
    with pytest.raises(BackendError, match="need a folder that the servers can read, or tensors"):
        await sglang.update_weights("4")
