"""Frames of the sample world without files: what a video of the scene would show, drawn once for all who ask."""

import asyncio

import numpy as np
import pytest

from paravt_infer.errors import VideoError
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_training.recipe import WorldData
from paravt_training.world import drawn_frames
from paravt_training.world.augmentation import Augmentation
from paravt_training.world.drawn_frames import DrawnFrames
from paravt_training.world.scene import Scene

SIZING = FrameSizing(multiple=32, max_pixels=4096)
SCENE = Scene.from_seed(3)


def named(store: DrawnFrames, scene: Scene = SCENE, name: str = "a.mp4") -> DrawnFrames:
    store.add(name, scene)
    return store


def worn(scene: Scene) -> Augmentation:
    return Augmentation(WorldData(kind="world"), scene.seed)


async def test_a_scene_is_as_long_as_its_video_would_be() -> None:
    info = await named(DrawnFrames()).probe("a.mp4")
    assert (info.path, info.duration, info.frames, info.fps) == ("a.mp4", SCENE.duration, SCENE.duration, 1.0)


async def test_a_frame_is_the_scenes_picture_on_screen_at_that_time() -> None:
    last = SCENE.duration - 1
    frames = await named(DrawnFrames()).frames("a.mp4", [0.0, 4.7, 6.9997, 7.0, SCENE.duration + 5.0], SIZING)
    assert [frame.time for frame in frames] == [0.0, 4.0, 7.0, float(last)]  # each once, in order
    for frame in frames:
        assert np.array_equal(frame.pixels, SCENE.render(frame.time, (64, 64)))
    (large,) = await named(DrawnFrames()).frames("a.mp4", [4.0], FrameSizing(multiple=32))
    assert large.pixels.shape == (224, 224, 3)


async def test_those_who_ask_for_the_same_frames_share_one_drawing() -> None:
    """A group's overview: eight ask at once, and once more when its rollouts are learned."""
    store = named(DrawnFrames(worn))
    times = sample_times(0, SCENE.duration, fps=1, limit=8)
    first, *others = await asyncio.gather(*(store.frames("a.mp4", times, SIZING) for _ in range(8)))
    again = await store.frames("a.mp4", [frame.time for frame in first], SIZING)
    assert store.drawn == len(times) == 8
    assert all(one is first for one in (*others, again))
    await store.frames("a.mp4", times[:3], SIZING)
    assert store.drawn == 11


async def test_what_has_to_be_drawn_again_is_the_same_to_the_pixel() -> None:
    small, roomy = named(DrawnFrames(worn, cache_bytes=0)), named(DrawnFrames(worn))
    once, again = [await small.frames("a.mp4", [1.0, 2.0, 9.0], SIZING) for _ in range(2)]
    other = await roomy.frames("a.mp4", [1.0, 2.0, 9.0], SIZING)
    assert small.drawn == 6
    assert [frame.digest for frame in once] == [frame.digest for frame in again] == [frame.digest for frame in other]
    assert not np.array_equal(once[0].pixels, SCENE.render(1.0, (64, 64)))  # it is worn


async def test_a_name_that_nobody_gave_is_an_error_of_the_video() -> None:
    with pytest.raises(VideoError, match=r"b\.mp4: not a scene of the sample world"):
        await named(DrawnFrames()).frames("b.mp4", [0.0], SIZING)


async def test_only_so_many_scenes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_frames, "MAX_SCENES", 2)
    store = DrawnFrames()
    for number in range(3):
        named(store, Scene.from_seed(number), f"{number}.mp4")
    named(store, Scene.from_seed(1), "1.mp4")  # asked of again: it stays
    named(store, Scene.from_seed(3), "3.mp4")
    assert (await store.probe("1.mp4")).duration == Scene.from_seed(1).duration
    with pytest.raises(VideoError):
        await store.probe("2.mp4")
