"""The three sample videos that ship with the package, each with a question and its correct answer.

``python -m paravt_training.world.samples`` writes them to `paravt_infer/samples`, the same bytes each time.
"""

import json
from pathlib import Path
from typing import Any

import paravt_infer
from paravt_training.world.render import write_video
from paravt_training.world.scene import Event, Scene

FOLDER = Path(paravt_infer.__file__).parent / "samples"
SIZE = (256, 256)

SAMPLES: tuple[tuple[str, Scene, dict[str, Any]], ...] = (
    (
        "two-times.mp4",
        Scene(
            seed=1,
            duration=48,
            background="grey",
            events=(
                Event(start=10, end=15, shape="circle", colour="red"),
                Event(start=24, end=28, shape="square", colour="yellow", motion="right"),
                Event(start=39, end=43, shape="star", colour="blue"),
            ),
        ),
        {
            "question": "What is seen at 00:12 and at 00:41, in this order?",
            "options": {
                "A": "blue star, red circle",
                "B": "red circle, yellow square",
                "C": "red circle, blue star",
                "D": "green triangle, blue star",
            },
            "answer": "C",
            "note": "Two windows, looked at in one turn.",
        },
    ),
    (
        "three-times.mp4",
        Scene(
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
        {
            "question": "Which colours are seen at 00:09, 00:33 and 00:50, in this order?",
            "options": {
                "A": "green, white, purple",
                "B": "purple, white, green",
                "C": "green, purple, white",
                "D": "green, white, blue",
            },
            "answer": "A",
            "note": "Three windows, looked at in one turn.",
        },
    ),
    (
        "which-time.mp4",
        Scene(
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
        {
            "question": "At which of these times is a red star seen?",
            "options": {"A": "00:08", "B": "00:18", "C": "00:40", "D": "00:52"},
            "answer": "C",
            "note": "Four windows, one for each option, looked at in one turn.",
        },
    ),
)


def write_samples(folder: Path = FOLDER) -> list[Path]:
    """Write the videos and `samples.json`, a list of {path, question, options, answer, note}; return all paths."""
    folder.mkdir(parents=True, exist_ok=True)
    videos = [write_video(scene, folder / name, size=SIZE, quality=20) for name, scene, _ in SAMPLES]
    listing = folder / "samples.json"
    listing.write_text(json.dumps([{"path": name} | about for name, _, about in SAMPLES], indent=2) + "\n")
    return [*videos, listing]


if __name__ == "__main__":
    for written in write_samples():
        print(f"{written} ({written.stat().st_size:,} bytes)")
