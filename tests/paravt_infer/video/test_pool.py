"""The pool of decoders: nothing that happens to a worker process reaches more than the request it had."""

import asyncio
import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from paravt_infer.errors import VideoError
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.types import VideoIndex
from paravt_training.world.numbered_video import read_number
from tests.fixtures.films import Films

SIZE = (192, 128)


@pytest.fixture
async def pool() -> AsyncIterator[DecodePool]:
    """One worker, so that every request meets the one that something happens to."""
    async with DecodePool(workers=1, deadline=30) as pool:
        yield pool


@pytest.fixture
async def index(pool: DecodePool, films: Films) -> VideoIndex:
    return await pool.index(films("h264"))


def workers(pool: DecodePool) -> list[int]:
    """The process ids of its workers."""
    return [worker.process.pid for worker in pool._alive]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def read(pool: DecodePool, index: VideoIndex, number: int = 100) -> int:
    """The number on the frame of that number."""
    (picture,) = await pool.read(index, [number], SIZE)
    return read_number(picture)


async def asked(pool: DecodePool) -> None:
    """Returns when a stopped worker has a request in its pipe."""
    (worker,) = pool._alive
    while not any(fcntl.ioctl(worker.connection.fileno(), termios.TIOCOUTQ, bytes(4))):
        await asyncio.sleep(0)


def long(index: VideoIndex) -> VideoIndex:
    """The index of a film of hours: it does not fit into a pipe."""
    return dataclasses.replace(index, times=np.arange(1e6), pts=np.arange(10**6))


async def test_pictures_are_the_frames_asked_for(pool: DecodePool, index: VideoIndex) -> None:
    pictures = await pool.read(index, [0, 1, 77, 249], SIZE)
    assert [read_number(picture) for picture in pictures] == [0, 1, 77, 249]
    assert pictures[0].shape == (128, 192, 3)


async def test_a_worker_starts_with_the_first_request_and_serves_the_next_ones(films: Films) -> None:
    async with DecodePool(workers=4) as pool:
        assert workers(pool) == []
        index = await pool.index(films("h264"))
        (first,) = workers(pool)
        assert [await read(pool, index, number) for number in (7, 8, 9)] == [7, 8, 9]
        assert workers(pool) == [first]


@pytest.mark.parametrize("length", ["short", "long"])
async def test_a_hung_worker_is_killed_at_the_deadline_and_replaced(
    length: str, pool: DecodePool, index: VideoIndex
) -> None:
    (hung,) = workers(pool)
    os.kill(hung, signal.SIGSTOP)
    pool.deadline = 0.3
    with pytest.raises(VideoError) as error:
        await read(pool, long(index) if length == "long" else index)
    assert str(error.value) == f"{index.info.path}: decoding took over 0.3 s and was stopped; try another reader"
    assert not alive(hung)

    pool.deadline = 30
    assert await read(pool, index) == 100
    assert workers(pool) != [hung]
    assert pool.killed == 1


async def test_a_worker_killed_at_work_fails_that_request_and_is_replaced(pool: DecodePool, index: VideoIndex) -> None:
    (killed,) = workers(pool)
    os.kill(killed, signal.SIGSTOP)
    request = asyncio.create_task(read(pool, index))
    await asked(pool)
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(VideoError) as error:
        await request
    assert str(error.value) == f"{index.info.path}: the decoder crashed; try another copy or reader"
    assert await read(pool, index) == 100
    assert pool.killed == 1


async def test_a_worker_killed_while_idle_fails_nothing(pool: DecodePool, index: VideoIndex) -> None:
    (worker,) = pool._alive
    worker.process.kill()
    worker.process.wait()
    assert await read(pool, index) == 100
    assert pool.killed == 1


async def test_the_event_loop_goes_on_while_a_decoder_hangs(pool: DecodePool, index: VideoIndex) -> None:
    (worker,) = workers(pool)
    os.kill(worker, signal.SIGSTOP)
    request = asyncio.create_task(read(pool, long(index)))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert not request.done()
    os.kill(worker, signal.SIGCONT)
    with pytest.raises(VideoError):  # there is no frame 100 at timestamp 100
        await request
    assert await read(pool, index) == 100


async def test_one_hung_worker_does_not_hold_up_the_others(films: Films) -> None:
    async with DecodePool(workers=2, deadline=30) as pool:
        index = await pool.index(films("h264"))
        (first,) = workers(pool)
        os.kill(first, signal.SIGSTOP)
        hanging = asyncio.create_task(read(pool, index, 1))
        await asked(pool)
        assert await asyncio.gather(*(read(pool, index, number) for number in range(100, 110))) == [*range(100, 110)]
        assert not hanging.done()
        os.kill(first, signal.SIGCONT)
        assert await hanging == 1


async def test_many_requests_at_once_each_get_their_own_frames(films: Films) -> None:
    async with DecodePool(workers=2, deadline=30) as pool:
        indexes = await asyncio.gather(*(pool.index(films(name)) for name in ("h264", "hevc", "with sound")))
        asks = [(index, number) for index in indexes for number in range(0, 250, 25)]
        assert await asyncio.gather(*(read(pool, *ask) for ask in asks)) == [number for _, number in asks]
        assert len(workers(pool)) == 2


async def test_closing_ends_every_worker_and_answers_every_request(films: Films) -> None:
    pool = DecodePool(workers=2, deadline=30)
    index = await pool.index(films("h264"))
    (busy,) = workers(pool)
    os.kill(busy, signal.SIGSTOP)
    requests = [asyncio.create_task(read(pool, long(index))) for _ in range(20)]
    await asyncio.sleep(0)
    pids = workers(pool)
    await pool.close()
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert {type(answer) for answer in answers} == {VideoError}
    assert str(answers[0]) == f"{index.info.path}: decoding was stopped"
    assert not any(alive(pid) for pid in [*pids, *workers(pool)])
    assert pool.killed == 0


async def test_a_closed_pool_says_so_and_may_be_closed_again(pool: DecodePool, index: VideoIndex) -> None:
    await pool.close()
    await pool.close()
    with pytest.raises(VideoError, match="decoding was stopped"):
        await read(pool, index)


async def test_ctrl_c_is_left_to_the_parent(pool: DecodePool, index: VideoIndex) -> None:
    (worker,) = workers(pool)
    os.kill(worker, signal.SIGINT)
    assert await read(pool, index) == 100
    assert workers(pool) == [worker]


def test_workers_end_with_a_parent_that_was_killed(films: Films) -> None:
    script = (
        "import asyncio, os, signal, sys; from paravt_infer.video.pool import DecodePool\n"
        "pool = DecodePool(workers=1); asyncio.run(pool.index(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    # The worker holds the other end of this output: it returns when both processes are gone.
    ended = subprocess.run([sys.executable, "-c", script, films("h264")], stdout=subprocess.PIPE, timeout=60)
    assert ended.returncode == -signal.SIGKILL


def test_an_unknown_reader_is_named() -> None:
    with pytest.raises(VideoError, match="unknown reader 'vhs'; choose from pyav, decord, torchcodec"):
        DecodePool(workers=1, reader="vhs")
