"""Scenes and their videos: the same pixels from the same seed, and files that show what the scene does."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paravt_infer.errors import SettingsError
from paravt_infer.video.index import read_index
from paravt_infer.video.readers import get_reader
from paravt_training.world.render import FPS, write_video
from paravt_training.world.scene import BACKGROUNDS, COLOURS, GAP, MARGIN, SHAPES, Event, Scene

_PRINT_DIGEST = """
import hashlib
from paravt_training.world.scene import Scene
from paravt_training.world.questions import question_set
digest = hashlib.sha256()
for seed in (1, 2):
    scene = Scene.from_seed(seed)
    for time in (0.0, scene.events[0].start + 1.25):
        digest.update(scene.render(time, (64, 48)).tobytes())
digest.update(repr(question_set(5, "rl", 20)).encode())
print(digest.hexdigest())
"""


def digest(hash_seed: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _PRINT_DIGEST]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_other_processes_make_the_same_pictures_and_questions() -> None:
    assert digest("1") == digest("2") != hashlib.sha256().hexdigest()


@pytest.mark.parametrize("seed", range(0, 400, 4))
def test_scenes_keep_their_promises(seed: int) -> None:
    scene = Scene.from_seed(seed)
    assert 30 <= scene.duration <= 600
    assert scene.events
    assert len({event.name for event in scene.events}) == len(scene.events)
    assert scene.events[0].start >= MARGIN
    assert scene.events[-1].end <= scene.duration - MARGIN
    for event in scene.events:
        assert 2 <= event.end - event.start <= 6
        for time in (event.start, event.end - 0.125):
            assert all(event.radius <= at <= 1 - event.radius for at in event.centre(time))
    for one, two in zip(scene.events, scene.events[1:], strict=False):
        assert two.start - one.end >= GAP >= 3


def test_an_event_is_seen_from_its_start_until_before_its_end() -> None:
    event = Event(start=10, end=13, shape="star", colour="red")
    scene = Scene(seed=0, duration=30, background="grey", events=(event,))
    bare = replace(scene, events=())
    changed = [t for t in np.arange(8, 15, 0.125) if (scene.render(t, (64, 64)) != bare.render(t, (64, 64))).any()]
    assert changed == list(np.arange(10, 13, 0.125))


def test_shapes_and_colours_differ_clearly_at_64_pixels() -> None:
    def picture(shape: str, colour: str, background: str) -> np.ndarray:
        event = Event(start=5, end=9, shape=shape, colour=colour)
        return Scene(seed=0, duration=30, background=background, events=(event,)).render(6, (64, 64)).astype(int)

    for background, ground in BACKGROUNDS.items():
        colours = {**COLOURS, "none": ground}
        for one in colours:
            for two in colours:
                assert one == two or np.abs(np.subtract(colours[one], colours[two])).max() >= 60, (one, two, background)
        pictures = [picture(shape, "yellow", background) for shape in SHAPES]
        for number, one_shape in enumerate(pictures):
            for other in pictures[:number]:
                assert (np.abs(one_shape - other).max(axis=2) > 60).sum() > 120  # of 4096 pixels


def test_the_background_moves_slowly() -> None:
    scene = replace(Scene.from_seed(3), events=())
    now, soon, later = (scene.render(time, (64, 64)).astype(int) for time in (10, 10.125, 25))
    assert np.abs(now - soon).max() <= 2
    assert np.abs(now - later).max() >= 4


@pytest.mark.parametrize("seed", [11, 12])
def test_a_video_shows_what_its_scene_does(seed: int, tmp_path: Path) -> None:
    scene = Scene.from_seed(next(s for s in range(seed * 1000, seed * 1000 + 999) if Scene.from_seed(s).duration < 60))
    path = write_video(scene, tmp_path / "scene.mp4")
    index = read_index(str(path))
    assert (index.info.codec, index.info.width, index.info.height) == ("h264", 128, 128)
    assert index.info.duration == pytest.approx(scene.duration)
    assert index.times == pytest.approx(np.arange(scene.duration * FPS) / FPS)
    assert np.diff(index.keys * (index.times[1] / index.pts[1])) == pytest.approx(2.0)
    assert path.stat().st_size < 150_000
    borders = [
        index.frame_at(t) for event in scene.events for t in (event.start - 0.125, event.start, event.end - 0.125)
    ]
    numbers = sorted({*range(0, len(index.times), 16), *borders})
    for size, tolerance in (((128, 128), 3.0), ((64, 64), 3.5)):
        for number, picture in zip(numbers, get_reader("pyav").read(index, numbers, size), strict=True):
            expected = scene.render(index.times[number], size)
            assert np.abs(picture.astype(int) - expected).mean() < tolerance


def test_a_video_is_written_atomically(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="even"):
        write_video(Scene.from_seed(0), tmp_path / "odd.mp4", size=(127, 128))
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"file/scene\.mp4: cannot write"):
        write_video(Scene.from_seed(0), tmp_path / "file" / "scene.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
