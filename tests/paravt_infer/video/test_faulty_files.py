"""A faulty file gives right frames or one error of one line: which file, what is wrong with it, what to do."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paravt_infer.errors import VideoError
from paravt_infer.video.store import VideoStore
from paravt_training.world.damaged_video import inflate_duration, overwrite_with_noise, remux, truncate
from paravt_training.world.numbered_video import read_number
from tests.fixtures.films import SIZING, Films, replaced, sound_only, without_frames

Maker = Callable[[Path, Path], Path]


def written(to: Path, data: bytes) -> Path:
    to.write_bytes(data)
    return to


UNREADABLE: dict[str, tuple[Maker, str]] = {
    "missing": (lambda good, at: at / "gone.mp4", "no such file; check the path"),
    "a folder": (lambda good, at: at, "not a file; give the path of one video file"),
    "below a file": (lambda good, at: good / "film.mp4", "no such file; check the path"),
    "empty": (lambda good, at: written(at / "empty.mp4", b""), "the file is empty (0 bytes); copy or"),
    "text": (lambda good, at: written(at / "text.mp4", b"Not a film at all.\n" * 99), "not a video, or truncated"),
    "noise": (
        lambda good, at: overwrite_with_noise(good, at / "noise.mp4", at=0, length=10**6),
        "not a video, or truncated",
    ),
    "cut off before its index": (
        lambda good, at: truncate(good, at / "cut.mp4", fraction=0.7),
        "not a video, or truncated",
    ),
    "cut off in its index": (
        lambda good, at: truncate(good, at / "cut.mp4", fraction=0.95),
        "not a video, or truncated",
    ),
    "cut off in its first bytes": (
        lambda good, at: truncate(good, at / "cut.mp4", fraction=0.002),
        "not a video, or truncated",
    ),
    "sound only": (lambda good, at: sound_only(at / "sound.m4a"), "has no video stream (audio or text only); choose"),
    "sound with a cover": (lambda good, at: sound_only(at / "song.mp4", cover=True), "has no video stream"),
    "no frame in it": (lambda good, at: without_frames(at / "header.mp4"), "has no video stream"),
    "unknown codec": (
        lambda good, at: replaced(good, at / "codec.mp4", b"avc1", b"zzz1"),
        "its codec is not supported",
    ),
    "wrong codec": (
        lambda good, at: replaced(good, at / "codec.mp4", b"avc1", b"hvc1"),
        "no decodable frame",
    ),
}


@pytest.mark.parametrize("fault", UNREADABLE)
async def test_an_unreadable_file_is_told_in_one_line(
    fault: str, films: Films, store: VideoStore, tmp_path: Path
) -> None:
    make, says = UNREADABLE[fault]
    path = make(Path(films("h264")), tmp_path)
    with pytest.raises(VideoError) as probing:
        await store.probe(str(path))
    with pytest.raises(VideoError) as reading:
        await store.frames(str(path), [0, 1, 2], SIZING)
    assert str(probing.value) == str(reading.value)
    assert str(reading.value).startswith(f"{path}: ")
    assert says in str(reading.value)
    assert "; " in str(reading.value)
    assert "\n" not in str(reading.value)


async def test_a_fifo_is_no_film_and_nobody_waits_for_its_writer(store: VideoStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.mp4")
    with pytest.raises(VideoError, match=r"fifo\.mp4: not a file; give the path of one video file"):
        await store.probe(str(tmp_path / "fifo.mp4"))


async def each_frame(store: VideoStore, path: Path) -> tuple[list[float], list[str]]:
    """Times of the frames that came, each checked to be the right one, and the errors instead of the others."""
    info = await store.probe(str(path))
    right, errors = [], []
    for number in range(0, round(info.duration * 25), 5):
        try:
            (frame,) = await store.frames(str(path), [number / 25], SIZING)
        except VideoError as error:
            errors.append(str(error))
        else:
            assert read_number(frame.pixels) == round(frame.time * 25)
            right.append(frame.time)
    return right, errors


@pytest.mark.parametrize("part", [0.4, 0.77, 0.98])
@pytest.mark.parametrize("name", ["h264", "hevc", "mpeg4", "with sound"])
async def test_a_file_cut_off_behind_its_index_ends_at_the_cut(
    name: str, part: float, films: Films, store: VideoStore, tmp_path: Path
) -> None:
    whole = remux(Path(films(name)), tmp_path / "whole.mp4", movflags="faststart")
    path = truncate(whole, tmp_path / "cut.mp4", fraction=part, after=b"mdat")
    info = await store.probe(str(path))
    right, errors = await each_frame(store, path)
    assert errors == []
    assert len(right) == len(set(right)) > 1
    assert info.duration < 10
    assert info.container_duration == pytest.approx(10, abs=0.1)
    assert info.frames < 250


@pytest.mark.parametrize("name", ["h264, open groups, mkv", "h264, open groups, mpegts", "vp9"])
async def test_a_file_without_an_index_ends_at_the_cut(
    name: str, films: Films, store: VideoStore, tmp_path: Path
) -> None:
    path = truncate(Path(films(name)), tmp_path / Path(films(name)).name, fraction=0.6)
    right, errors = await each_frame(store, path)
    assert errors == []
    assert 10 < len(right) < 50
    assert (await store.probe(str(path))).duration < 9


@pytest.mark.parametrize("times_as_long", [2, 100])
@pytest.mark.parametrize("name", ["h264", "h264, open groups, mkv"])
async def test_a_header_that_claims_too_much_is_not_believed(
    name: str, times_as_long: int, films: Films, store: VideoStore, tmp_path: Path
) -> None:
    good = Path(films(name))
    path = inflate_duration(good, tmp_path / good.name, factor=times_as_long)
    info = await store.probe(str(path))
    assert (info.duration, info.frames) == (pytest.approx(10), 250)
    right, errors = await each_frame(store, path)
    assert (len(right), errors) == (50, [])


async def test_what_a_header_claims_is_told_beside_what_is_there(
    films: Films, store: VideoStore, tmp_path: Path
) -> None:
    path = inflate_duration(Path(films("h264, open groups, mkv")), tmp_path / "claims.mkv", factor=3)
    info = await store.probe(str(path))
    assert (info.container_duration, info.duration) == (pytest.approx(30, abs=0.1), pytest.approx(10))


@pytest.mark.parametrize("at", [0.2, 0.45, 0.7])
@pytest.mark.parametrize("name", ["h264", "h264, open groups", "hevc", "av1"])
async def test_noise_in_the_middle_costs_the_frames_that_build_on_it_alone(
    name: str, at: float, films: Films, store: VideoStore, tmp_path: Path
) -> None:
    path = overwrite_with_noise(Path(films(name)), tmp_path / "noisy.mp4", at=at, length=300)
    right, errors = await each_frame(store, path)
    assert len(right) >= 30
    assert len(right) + len(errors) == 50
    for error in errors:
        assert error.startswith(f"{path}: 1 of 1 frames cannot be decoded, the first at ")
        assert error.endswith(" s; the file is damaged there, try another copy")


async def test_one_error_tells_how_many_frames_are_lost(films: Films, store: VideoStore, tmp_path: Path) -> None:
    path = overwrite_with_noise(Path(films("h264")), tmp_path / "noisy.mp4", at=0.45, length=300)
    with pytest.raises(VideoError, match=r"noisy\.mp4: \d+ of 250 frames cannot be decoded, the first at \d\.\d s; "):
        await store.frames(str(path), [number / 25 for number in range(250)], SIZING)


@pytest.mark.parametrize("name", ["h264, open groups, mkv", "h264, open groups, mpegts", "h264 with B frames in avi"])
async def test_noise_in_any_other_file_ends_in_frames_or_an_error_too(
    name: str, films: Films, store: VideoStore, tmp_path: Path
) -> None:
    path = overwrite_with_noise(Path(films(name)), tmp_path / Path(films(name)).name, at=0.5, length=300)
    info = await store.probe(str(path))
    assert 0 < info.duration <= 10.1
    (first,) = await store.frames(str(path), [0], SIZING)
    assert read_number(first.pixels) == 0
