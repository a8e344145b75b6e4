"""The scenes of the three sample videos that ship with the package; samples.json next to them has their questions.

``python -m paravt_training.world.samples`` writes the videos to `paravt_infer/samples`, the same bytes each time.
"""

from pathlib import Path

import paravt_infer
from paravt_training.world.render import write_video
from paravt_training.world.scene import Event, Scene

FOLDER = Path(paravt_infer.__file__).parent / "samples"
SIZE = (256, 256)

SAMPLE_SCENES: dict[str, Scene] = {
    "two-times.mp4": Scene(
        seed=1,
        duration=48,
        background="grey",
        events=(
            Event(start=10, end=15, shape="circle", colour="red"),
            Event(start=24, end=28, shape="square", colour="yellow", motion="right"),
            Event(start=39, end=43, shape="star", colour="blue"),
        ),
    ),
    "three-times.mp4": Scene(
        seed=2,
        duration=58,
        background="black",
        events=(
            Event(start=7, end=11, shape="triangle", colour="green", motion="left"),
            Event(start=18, end=21, shape="star", colour="yellow"),
            Event(start=31, end=36, shape="circle", colour="white", motion="down"),
            Event(start=48, end=52, shape="square", colour="purple"),
        ),
    ),
    "which-time.mp4": Scene(
        seed=3,
        duration=60,
        background="brown",
        events=(
            Event(start=6, end=10, shape="circle", colour="blue", motion="up"),
            Event(start=16, end=20, shape="triangle", colour="yellow"),
            Event(start=27, end=30, shape="square", colour="white", motion="right"),
            Event(start=37, end=42, shape="star", colour="red"),
            Event(start=50, end=54, shape="triangle", colour="green", motion="left"),
        ),
    ),
}


def write_sample_videos(folder: Path = FOLDER) -> list[Path]:
    """Write the videos and return their paths."""
    return [write_video(scene, folder / name, size=SIZE, quality=20) for name, scene in SAMPLE_SCENES.items()]


if __name__ == "__main__":
    for path in write_sample_videos():
        print(f"{path} ({path.stat().st_size:,} bytes)")
