"""Scenes to video files: H.264 in MP4, by PyAV. Each frame is `Scene.render` at its time, up to compression."""

from collections.abc import Mapping
from pathlib import Path

import av

from paravt_infer.console import delayed_progress
from paravt_infer.files import atomic_path
from paravt_training.world.scene import Scene

FPS = 8
"""Frames per second of every video written here."""
KEY_SECONDS = 2
"""Seconds between key frames."""


def write_videos(scenes: Mapping[str, Scene]) -> None:
    """Write the videos that do not exist yet, with progress on stderr; keys are their paths. Raises SettingsError."""
    missing = {path: scene for path, scene in scenes.items() if not Path(path).exists()}
    with delayed_progress("writing videos", len(missing)) as advance:
        for path, scene in missing.items():
            write_video(scene, path)
            advance()


def write_video(scene: Scene, path: Path | str, *, size: tuple[int, int] = (128, 128), quality: int = 23) -> Path:
    """Write `scene` to `path` (an .mp4) atomically, and return it. Missing parent folders are created.

    Args:
        size: width and height in pixels, both even.
        quality: x264's constant rate factor; lower is better and larger.

    Raises:
        ValueError: a side of `size` is odd.
        SettingsError: the file cannot be written.
    """
    if size[0] % 2 or size[1] % 2:
        raise ValueError(f"a video's sides must be even, not {size[0]}x{size[1]}")
    path = Path(path)
    options = {"crf": str(quality), "preset": "veryfast", "x264-params": f"keyint={FPS * KEY_SECONDS}:scenecut=0"}
    with (
        atomic_path(path) as scratch,
        av.open(str(scratch), "w", format="mp4", options={"movflags": "faststart"}) as container,
    ):
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # the same bytes on any number of cores
        for number in range(scene.duration * FPS):
            frame = av.VideoFrame.from_ndarray(scene.render(number / FPS, size), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path
