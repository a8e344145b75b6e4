"""The sample world as files: videos and Parquet in the paper's layout (appendix "Format and Storage").

``python -m paravt_training.world.build OUT --split train --count 1000 --seed 0`` writes `OUT/train.parquet` and
`OUT/videos/*.mp4`. Rows of `train` are traces; rows of `rl` and `test` are questions (system and user messages).
Columns: `messages`, a JSON string of [{role, content}] whose content is a text or a list of
{"type": "text", "text"} and {"type": "video", "video", "start", "end", "frames"}; `videos`, paths in `OUT`;
`extra_info`, the right answer and what is known of the question.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from paravt_training.world.questions import SPLITS, Split, WorldQuestion, question_stream, video_name
from paravt_training.world.render import write_video
from paravt_training.world.scene import Scene
from paravt_training.world.stream import Mix, trace_at
from paravt_training.world.traces import FramePlaceholder, Trace, opening_trace
from paravt_training.world.windows import BUDGETS, WINDOW_FRAMES

SCHEMA = pa.schema(
    [
        ("messages", pa.string()),
        ("videos", pa.list_(pa.string())),
        (
            "extra_info",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("answer", pa.string()),
                    ("question_type", pa.string()),
                    ("kind", pa.string()),
                    ("options", pa.list_(pa.string())),
                    ("duration", pa.float64()),
                    ("seen_by_overview", pa.struct([(str(budget), pa.bool_()) for budget in BUDGETS])),
                    ("seed", pa.int64()),
                    ("protocol", pa.string()),
                    ("form", pa.string()),
                ]
            ),
        ),
    ]
)
"""`question_type` is as in `world.questions.TYPES`, or `perception`; `kind` is choice, open or grounding
(open for perception); `options` stand in the order of their letters; `seed` is the scene's."""
ROWS_AT_ONCE = 256


def rows(split: Split, count: int, seed: int, *, mix: Mix | None = None) -> Iterator[tuple[Scene, dict[str, Any]]]:
    """The rows of a split and their scenes, one after the other; about five rows share a scene."""
    if split == "train":
        traces = (trace_at(seed, split, number, mix, shared=True) for number in range(count))
    else:
        traces = (opening_trace(asked, 64) for asked in question_stream(seed, split, count))
    return ((trace.scene, row_of(trace)) for trace in traces)


def row_of(trace: Trace) -> dict[str, Any]:
    """A trace as a row of `SCHEMA`; its video is `videos/`, and the scene's name."""
    asked: WorldQuestion | None = trace.asked
    video = f"videos/{video_name(trace.scene)}"
    return {
        "messages": json.dumps(_messages(trace, video)),
        "videos": [video],
        "extra_info": {
            "id": asked.question.id if asked else "",
            "answer": asked.answer if asked else trace.messages[-1].text,
            "question_type": asked.type if asked else "perception",
            "kind": asked.question.kind if asked else "open",
            "options": list(asked.question.options.values()) if asked else [],
            "duration": float(trace.scene.duration),
            "seen_by_overview": {str(budget): seen for budget, seen in asked.seen_by_overview.items()}
            if asked
            else None,
            "seed": trace.scene.seed,
            "protocol": trace.protocol,
            "form": trace.form,
        },
    }


def _messages(trace: Trace, video: str) -> list[dict[str, Any]]:
    """Messages with each run of frames, and the times before them, as one video part."""
    overview = [(0.0, float(trace.scene.duration))] if trace.asked else []
    spans = chain(overview, trace.windows)
    messages = []
    for said in trace.messages:
        content: list[dict[str, Any]] = []
        for number, part in enumerate(said.parts):
            following = said.parts[number + 1 : number + 2]
            if isinstance(part, str):
                if following and isinstance(following[0], FramePlaceholder):
                    continue
                if content and content[-1]["type"] == "text":
                    content[-1]["text"] += part
                else:
                    content.append({"type": "text", "text": part})
            elif not content or content[-1]["type"] != "video":
                start, end = next(spans)
                limit = trace.budget if said.role == "user" and trace.asked else WINDOW_FRAMES
                content.append({"type": "video", "video": video, "start": start, "end": end, "frames": limit})
        plain = len(content) == 1 and content[0]["type"] == "text"
        message = {"role": said.role, "content": content[0]["text"] if plain else content}
        messages.append(message | ({"stopped": True} if said.stopped else {}))
    return messages


def build(
    out: Path, split: Split, count: int, seed: int, *, videos: bool = True, mix: Mix | None = None
) -> tuple[Path, int]:
    """Write a split into the folder `out`; returns the Parquet file and how many videos its rows name.

    Videos that are there already are kept. Memory does not grow with `count`.

    Raises:
        OSError: a file cannot be written.
    """
    (out / "videos").mkdir(parents=True, exist_ok=True)
    path = out / f"{split}.parquet"
    part = path.with_name(path.name + ".part")
    batch: list[dict[str, Any]] = []
    named: set[int] = set()
    with pq.ParquetWriter(part, SCHEMA) as writer, _Bar(count) as bar:
        for scene, row in rows(split, count, seed, mix=mix):
            video = out / "videos" / video_name(scene)
            if scene.seed not in named and videos and not video.exists():
                write_video(scene, video)
            named.add(scene.seed)
            batch.append(row)
            if len(batch) == ROWS_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(batch, schema=SCHEMA))
                batch = []
            bar.advance()
        if batch:
            writer.write_table(pa.Table.from_pylist(batch, schema=SCHEMA))
    return part.replace(path), len(named)


class _Bar:
    """A progress bar on stderr, shown once two seconds have passed."""

    def __init__(self, total: int):
        columns = (TextColumn("writing rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.progress.add_task("", total=total)
        self.began = time.monotonic()

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *exc: object) -> None:
        self.progress.stop()

    def advance(self) -> None:
        self.progress.advance(self.task)
        if not self.progress.live.is_started and time.monotonic() - self.began > 2:
            self.progress.start()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m paravt_training.world.build", description="Write the sample world."
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write into")
    parser.add_argument("--split", choices=SPLITS, default="train", help="which of the disjoint splits")
    parser.add_argument("--count", type=int, required=True, help="how many rows")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other rows")
    parser.add_argument(
        "--videos", action=argparse.BooleanOptionalAction, default=True, help="write the videos, or the rows alone"
    )
    given = parser.parse_args()
    if given.count < 1:
        parser.error(f"--count must be at least 1, not {given.count}")
    try:
        path, videos = build(given.out, given.split, given.count, given.seed, videos=given.videos)
    except OSError as error:
        sys.exit(f"{error.filename or given.out}: cannot be written ({error.strerror}); choose another folder")
    print(f"{path}: {given.count} rows about {videos} videos")


if __name__ == "__main__":
    main()
