"""Scenes to video files: H.264 in MP4, by PyAV. Each frame is `Scene.picture` at its time, up to compression."""

from collections.abc import Mapping
from pathlib import Path

import av

from paravt_training.world.scene import Scene

FPS = 8
"""Frames a second of every video written here."""
KEY_SECONDS = 2
"""Seconds from one key frame to the next."""


def write_videos(scenes: Mapping[str, Scene]) -> None:
    """Write the videos that are not there yet, with progress on stderr; keys are their paths."""
    from rich.console import Console
    from rich.progress import track

    todo = {path: scene for path, scene in scenes.items() if not Path(path).exists()}
    for path, scene in track(todo.items(), "videos", total=len(todo), console=Console(stderr=True), disable=not todo):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_video(scene, path)


def write_video(scene: Scene, path: Path | str, *, size: tuple[int, int] = (128, 128), quality: int = 23) -> Path:
    """Write `scene` to `path` (an .mp4) and return it. A file is there only when it is whole.

    Args:
        size: width and height in pixels, both even.
        quality: x264's constant rate factor; less is better and larger.

    Raises:
        ValueError: a side of `size` is odd.
        OSError: the file cannot be written.
    """
    if size[0] % 2 or size[1] % 2:
        raise ValueError(f"a video's sides must be even, not {size[0]}x{size[1]}")
    path = Path(path)
    part = path.with_name(path.name + ".part")
    options = {"crf": str(quality), "preset": "veryfast", "x264-params": f"keyint={FPS * KEY_SECONDS}:scenecut=0"}
    with av.open(str(part), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # the same bytes on any number of cores
        for number in range(scene.duration * FPS):
            frame = av.VideoFrame.from_ndarray(scene.picture(number / FPS, size), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return part.replace(path)
