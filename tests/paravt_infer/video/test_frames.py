"""Every frame that comes back is the one its time says, whatever the codec, the container or the order of asking."""

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_infer.video.store import VideoStore
from paravt_infer.video.types import Frame
from paravt_training.world.damaged_video import remux
from paravt_training.world.numbered_video import read_number, write_numbered_video
from tests.fixtures.films import FILMS, SIZING, Films, single_colour


def numbers(frames: list[Frame]) -> list[int]:
    return [read_number(frame.pixels) for frame in frames]


@pytest.mark.parametrize("name", FILMS)
async def test_all_frames_at_once(name: str, films: Films, store: VideoStore) -> None:
    times = FILMS[name].times
    frames = await store.frames(films(name), times, SIZING)
    assert numbers(frames) == list(range(len(times)))
    assert [frame.time for frame in frames] == pytest.approx(times, abs=1e-3)


@pytest.mark.parametrize("name", FILMS)
async def test_single_frames_from_anywhere(name: str, films: Films, store: VideoStore) -> None:
    times = FILMS[name].times
    for number in {0, 1, len(times) // 5, len(times) // 2 - 1, len(times) // 2, len(times) - 1}:
        if 0 <= number < len(times):
            (frame,) = await store.frames(films(name), [times[number]], SIZING)
            assert (read_number(frame.pixels), frame.time) == (number, pytest.approx(times[number], abs=1e-3))


@pytest.mark.parametrize("name", FILMS)
async def test_a_thinned_overview_and_a_dense_window(name: str, films: Films, store: VideoStore) -> None:
    times = FILMS[name].times
    for asked in (times[::23], times[len(times) // 2 :][:16]):
        frames = await store.frames(films(name), asked, SIZING)
        assert numbers(frames) == [times.index(time) for time in asked]


@pytest.mark.parametrize("name", FILMS)
async def test_what_a_file_is_comes_from_its_frames(name: str, films: Films, store: VideoStore) -> None:
    film, info = FILMS[name], await store.probe(films(name))
    assert info.frames == len(film.times)
    assert (info.width, info.height) == film.arguments.get("size", (192, 128))
    assert info.rotation == film.arguments.get("rotation", 0)
    assert info.variable_rate == ("variable" in name)
    assert info.duration == pytest.approx(film.times[-1] + 1 / 25, abs=0.005)
    assert info.size_bytes == Path(films(name)).stat().st_size


async def test_codecs_have_their_usual_names(films: Films, store: VideoStore) -> None:
    codecs = [(await store.probe(films(name))).codec for name in ("h264", "hevc", "av1", "vp9", "mpeg4")]
    assert codecs == ["h264", "hevc", "av1", "vp9", "mpeg4"]


async def test_between_two_frames_the_earlier_one_is_on_screen(films: Films, store: VideoStore) -> None:
    frames = await store.frames(films("variable rate"), [0.03, 0.3, 1.99, 6.0, 29.99], SIZING)
    assert numbers(frames) == [0, 1, 3, 6, 8]
    assert [frame.time for frame in frames] == pytest.approx([0.0, 0.04, 0.51, 2.08, 7.5])


async def test_before_the_first_and_after_the_last_frame_those_are_on_screen(films: Films, store: VideoStore) -> None:
    assert numbers(await store.frames(films("five frames"), [-3, 100], SIZING)) == [0, 4]


async def test_a_film_with_fewer_frames_than_asked_for_gives_each_once(films: Films, store: VideoStore) -> None:
    moments = sample_times(0, 0.2, fps=320, limit=64)
    assert len(moments) == 64
    assert numbers(await store.frames(films("five frames"), moments, SIZING)) == [0, 1, 2, 3, 4]
    assert numbers(await store.frames(films("one frame"), moments, SIZING)) == [0]


async def test_frames_come_in_order_however_they_are_asked_for(films: Films, store: VideoStore) -> None:
    assert numbers(await store.frames(films("h264"), [8, 0, 4, 8, 0.01], SIZING)) == [0, 100, 200]


async def test_a_film_cut_between_key_frames_starts_at_the_cut(films: Films, store: VideoStore, tmp_path: Path) -> None:
    path = remux(Path(films("h264")), tmp_path / "from 1.32 s.mp4", offset=1.32)
    assert (await store.probe(str(path))).frames == 250 - 33
    frames = await store.frames(str(path), [0, 0.04, 4, 8.64], SIZING)
    assert numbers(frames) == [33, 34, 133, 249]
    assert [frame.time for frame in frames] == pytest.approx([0, 0.04, 4, 8.64])


@pytest.mark.parametrize("name", ["12:30.mp4", "a b.mp4", "50%03d.mp4", "фильм.mp4", "-i.mp4", "pipe:0"])
async def test_any_name_a_file_may_have(
    name: str, films: Films, store: VideoStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(Path(films("h264")).read_bytes())
    assert numbers(await store.frames(str(tmp_path / name), [4], SIZING)) == [100]
    monkeypatch.chdir(tmp_path)
    async with DecodePool(workers=1) as pool:
        assert numbers(await VideoStore(pool).frames(name, [4], SIZING)) == [100]


@pytest.mark.parametrize(
    ("matrix", "values"), [("bt709", (83, 106, 192)), ("smpte170m", (93, 100, 192)), ("undef", (93, 100, 192))]
)
async def test_colours_are_those_the_file_means(
    matrix: str, values: tuple[int, int, int], store: VideoStore, tmp_path: Path
) -> None:
    path = single_colour(tmp_path / "red.mp4", values, colormatrix=matrix)
    (frame,) = await store.frames(str(path), [0], SIZING)
    assert frame.pixels.reshape(-1, 3).mean(axis=0) == pytest.approx([192, 48, 32], abs=4)


async def test_a_turned_film_is_upright_at_its_displayed_size(store: VideoStore, tmp_path: Path) -> None:
    path = write_numbered_video(tmp_path / "upright.mp4", frames=30, size=(128, 192), rotation=90)
    info = await store.probe(str(path))
    assert (info.width, info.height, info.rotation) == (128, 192, 90)
    (frame,) = await store.frames(str(path), [1], SIZING)
    assert (frame.width, frame.height, read_number(frame.pixels)) == (128, 192, 25)


async def test_a_frame_has_the_size_asked_for(films: Films, store: VideoStore) -> None:
    for name in ("h264", "turned by 90"):
        (frame,) = await store.frames(films(name), [2], FrameSizing(multiple=28, max_pixels=12544))
        assert (frame.width, frame.height, read_number(frame.pixels)) == (140, 84, 50)


async def test_a_frame_as_png_has_the_same_pixels_and_its_name_tells_it_apart(films: Films, store: VideoStore) -> None:
    one, two = await store.frames(films("h264"), [1, 2], SIZING)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(one.png))), one.pixels)
    assert len(one.digest) == 12
    assert one.digest != two.digest
    assert one.digest == dataclasses.replace(one, time=7.0).digest


@pytest.mark.parametrize("name", ["h264", "h264, open groups, mkv", "turned by 90", "turned by 180", "variable rate"])
async def test_decord_gives_the_same_frames(name: str, films: Films) -> None:
    pytest.importorskip("decord")
    async with DecodePool(workers=1, reader="decord", deadline=30) as pool:
        times = FILMS[name].times[::23]
        frames = await VideoStore(pool).frames(films(name), times, SIZING)
    assert numbers(frames) == [FILMS[name].times.index(time) for time in times]
