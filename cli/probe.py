"""`paravt probe`: facts about a video file, as the engine sees them."""

from typing import TYPE_CHECKING, Annotated

import typer

from paravt_cli import options as shared

if TYPE_CHECKING:
    from paravt_infer.video.types import VideoInfo


def probe(video: Annotated[str, typer.Argument(help="The video file.")], as_json: shared.JsonOption = False) -> None:
    """Print a video's duration, frame rate, size, rotation and codec, read from its packets."""
    import asyncio
    import dataclasses
    import json

    from paravt_infer.times import format_time
    from paravt_infer.video.pool import DecodePool

    async def read() -> "VideoInfo":
        async with DecodePool(workers=1) as pool:
            return (await pool.index(video)).info

    info = asyncio.run(read())
    if as_json:
        print(json.dumps(dataclasses.asdict(info)))
        return
    rate = "variable rate, on average " if info.variable_rate else ""
    rows = {
        "duration": f"{info.duration:.2f} s ({format_time(info.duration)})",
        "frames": f"{info.frames}, {rate}{info.fps:.2f} fps",
        "size": f"{info.width} x {info.height} pixels as displayed (rotation {info.rotation}°)",
        "codec": info.codec,
        "file": f"{info.size_bytes:,} bytes",
    }
    if info.container_duration > info.duration + 1:
        claimed = f"the header claims {info.container_duration:.2f} s"
        rows["warning"] = f"{claimed}; the file is truncated or its header is wrong"
    for name, value in rows.items():
        print(f"{name:<9} {value}")
