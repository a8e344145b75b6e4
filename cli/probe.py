"""`paravt probe`: what a video file is, as the engine sees it."""

from typing import Annotated

import typer


def probe(
    video: Annotated[str, typer.Argument(help="The video file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a video's duration, frame rate, size, rotation and codec, read from its packets."""
    import asyncio
    import dataclasses
    import json

    from paravt_infer.times import format_time
    from paravt_infer.video.pool import DecodePool

    async def read() -> dict[str, object]:
        async with DecodePool(workers=1) as pool:
            return dataclasses.asdict((await pool.index(video)).info)

    facts = asyncio.run(read())
    if as_json:
        print(json.dumps(facts))
        return
    duration, claimed = float(str(facts["duration"])), float(str(facts["container_duration"]))
    rate = "variable, on average " if facts["variable_rate"] else ""
    rows = {
        "duration": f"{duration:.2f} s ({format_time(duration)})",
        "frames": f"{facts['frames']}, {rate}{facts['fps']:.2f} a second",
        "size": f"{facts['width']} x {facts['height']} pixels as displayed (rotation {facts['rotation']}°)",
        "codec": facts["codec"],
        "file": f"{facts['size_bytes']:,} bytes",
    }
    if claimed > duration + 1:
        rows["warning"] = f"the header claims {claimed:.2f} s; the file is cut or its header is wrong"
    for name, value in rows.items():
        print(f"{name:<9} {value}")
