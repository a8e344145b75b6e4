"""The store: one decode for all who ask for the same frames, kept as long as there is room."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from paravt_infer.errors import VideoError
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.store import VideoStore
from paravt_training.world.numbered_video import read_number, write_numbered_video
from tests.fixtures.films import SIZING, Films

FRAME = 2 * 192 * 128 * 3
"""Bytes that a frame is counted as: its pixels and, at most as many, its PNG."""


async def numbers(store: VideoStore, path: str, *times: float) -> list[int]:
    return [read_number(frame.pixels) for frame in await store.frames(path, times, SIZING)]


async def test_eight_who_ask_for_the_same_share_one_decode(films: Films, store: VideoStore, pool: DecodePool) -> None:
    before = pool.decodes
    answers = await asyncio.gather(*(numbers(store, films("h264"), 0, 4, 8) for _ in range(8)))
    assert answers == [[0, 100, 200]] * 8
    assert pool.decodes == before + 1


async def test_who_asks_later_gets_what_is_kept(films: Films, store: VideoStore, pool: DecodePool) -> None:
    first = await store.frames(films("h264"), [0, 4], SIZING)
    before = pool.decodes
    later = await store.frames(films("h264"), [0, 4], SIZING)
    assert pool.decodes == before
    assert [id(frame) for frame in later] == [id(frame) for frame in first]


async def test_other_times_with_the_same_frames_are_the_same_request(
    films: Films, store: VideoStore, pool: DecodePool
) -> None:
    await store.frames(films("h264"), [0, 4], SIZING)
    before = pool.decodes
    assert await numbers(store, films("h264"), 4.039, 0.01, 0) == [0, 100]
    assert pool.decodes == before


async def test_other_frames_and_other_sizes_are_other_requests(
    films: Films, store: VideoStore, pool: DecodePool
) -> None:
    before = pool.decodes
    await store.frames(films("h264"), [0], SIZING)
    await store.frames(films("h264"), [1], SIZING)
    await store.frames(films("h264"), [0], FrameSizing(multiple=28))
    await store.frames(films("h264, open groups"), [0], SIZING)
    assert pool.decodes == before + 4


async def test_one_who_stops_waiting_does_not_take_the_frames_from_the_others(
    films: Films, store: VideoStore, pool: DecodePool
) -> None:
    before = pool.decodes
    first, second = (asyncio.create_task(numbers(store, films("h264"), 1, 2)) for _ in range(2))
    while pool.decodes == before:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == [25, 50]
    assert pool.decodes == before + 1


async def test_what_nobody_waited_for_is_kept_all_the_same(films: Films, store: VideoStore, pool: DecodePool) -> None:
    before = pool.decodes
    only = asyncio.create_task(numbers(store, films("h264"), 1, 2))
    while pool.decodes == before:
        await asyncio.sleep(0)
    only.cancel()
    assert await numbers(store, films("h264"), 1, 2) == [25, 50]
    assert pool.decodes == before + 1


async def test_what_was_not_asked_for_the_longest_makes_room(films: Films, pool: DecodePool) -> None:
    store = VideoStore(pool, cache_bytes=3 * FRAME)  # two frames and the index

    async def decodes(second: float) -> int:
        before = pool.decodes
        assert await numbers(store, films("h264"), second) == [round(second * 25)]
        assert store.cache.size <= 3 * FRAME
        return pool.decodes - before

    assert [await decodes(second) for second in (0, 1)] == [1, 1]
    assert [await decodes(second) for second in (0, 1, 0)] == [0, 0, 0]
    assert await decodes(2) == 1
    assert [await decodes(second) for second in (0, 2)] == [0, 0]
    assert await decodes(1) == 1


@pytest.mark.parametrize("room", [0, 100, FRAME - 1])
async def test_without_room_every_request_is_answered_and_nothing_kept(
    room: int, films: Films, pool: DecodePool
) -> None:
    store = VideoStore(pool, cache_bytes=room)
    for _ in range(2):
        before = pool.decodes
        assert await numbers(store, films("h264"), 3) == [75]
        assert pool.decodes == before + 1
        assert store.cache.size <= room


async def test_a_failure_is_not_kept(films: Films, store: VideoStore, tmp_path: Path) -> None:
    path = tmp_path / "soon.mp4"
    with pytest.raises(VideoError, match="no such file"):
        await store.frames(str(path), [0], SIZING)
    path.write_bytes(b"not yet")
    with pytest.raises(VideoError, match="not a video"):
        await store.frames(str(path), [0], SIZING)
    shutil.copy(films("h264"), path)
    assert await numbers(store, str(path), 4) == [100]


async def test_all_who_wait_for_a_failure_are_told(store: VideoStore, tmp_path: Path) -> None:
    answers = await asyncio.gather(*(store.probe(str(tmp_path)) for _ in range(8)), return_exceptions=True)
    assert {str(answer) for answer in answers} == {f"{tmp_path}: not a file; give the path of one video file"}


async def test_a_file_written_anew_is_read_anew(films: Films, store: VideoStore, tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    shutil.copy(films("h264"), path)
    assert (await store.probe(str(path))).frames == 250
    assert await numbers(store, str(path), 4) == [100]

    write_numbered_video(path, frames=100, fps=10)
    assert (await store.probe(str(path))).frames == 100
    assert await numbers(store, str(path), 4) == [40]


async def test_a_file_of_the_same_size_written_later_is_another_one(
    films: Films, store: VideoStore, pool: DecodePool, tmp_path: Path
) -> None:
    path = tmp_path / "film.mp4"
    shutil.copy(films("h264"), path)
    await store.frames(str(path), [4], SIZING)
    before = pool.decodes
    os.utime(path, ns=(0, 1))
    await store.frames(str(path), [4], SIZING)
    assert pool.decodes == before + 1


async def test_closing_forgets_the_frames_and_ends_the_workers(films: Films) -> None:
    store = VideoStore(DecodePool(workers=1))
    await store.frames(films("h264"), [4], SIZING)
    assert store.cache.size > 0
    await store.close()
    assert store.cache.size == 0
    with pytest.raises(VideoError, match="decoding was stopped"):
        await store.frames(films("h264"), [4], SIZING)
