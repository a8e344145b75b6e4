"""The sample world as files: videos, and Parquet in the paper's layout (appendix "Format and Storage").

``python -m paravt_training.world.build OUT --split train --count 1000 --seed 0`` writes `OUT/train.parquet` and
`OUT/videos/*.mp4`. Rows of `train` are traces; rows of `rl` and `test` are questions (system and user messages).
Columns: `messages`, a JSON string of [{role, content}] whose content is a text or a list of
{"type": "text", "text"} and {"type": "video", "video", "start", "end", "frames"}; `videos`, paths in `OUT`;
`extra_info`, the correct answer and facts about the question.
"""

import argparse
import json
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paravt_infer.console import delayed_progress
from paravt_infer.errors import SettingsError
from paravt_infer.files import atomic_path, writing
from paravt_training.recipe import TraceMix
from paravt_training.world.questions import SPLITS, Split, WorldQuestion, question_at, video_name
from paravt_training.world.render import write_video
from paravt_training.world.stream import trace_at
from paravt_training.world.traces import FramePlaceholder, Trace, opening_trace
from paravt_training.world.windows import BUDGETS, WINDOW_FRAMES

SCHEMA = pa.schema(
    {
        "messages": pa.string(),
        "videos": pa.list_(pa.string()),
        "extra_info": pa.struct(
            {
                "id": pa.string(),
                "answer": pa.string(),
                "question_type": pa.string(),
                "kind": pa.string(),
                "options": pa.list_(pa.string()),
                "duration": pa.float64(),
                "seen_by_overview": pa.struct({str(budget): pa.bool_() for budget in BUDGETS}),
                "seed": pa.int64(),
                "protocol": pa.string(),
                "form": pa.string(),
            }
        ),
    }
)
"""`question_type` is a key of `world.questions.QUESTION_TYPES`, or `perception`; `kind` is choice, open or grounding
(open for perception); `options` are in the order of their letters; `seed` is the scene's."""
ROW_GROUP = 256
"""Rows in memory at once, and per row group."""


def trace_row(trace: Trace) -> dict[str, Any]:
    """A trace as a row of `SCHEMA`; its video is the scene's file in `videos/`."""
    item: WorldQuestion | None = trace.item
    video = f"videos/{video_name(trace.scene)}"
    return {
        "messages": json.dumps(_messages(trace, video)),
        "videos": [video],
        "extra_info": {
            "id": item.question.id if item else "",
            "answer": item.answer if item else trace.messages[-1].text,
            "question_type": item.type if item else "perception",
            "kind": item.question.kind if item else "open",
            "options": list(item.question.options.values()) if item else [],
            "duration": float(trace.scene.duration),
            "seen_by_overview": {str(budget): seen for budget, seen in item.seen_by_overview.items()} if item else None,
            "seed": trace.scene.seed,
            "protocol": trace.protocol,
            "form": trace.form,
        },
    }


def _messages(trace: Trace, video: str) -> list[dict[str, Any]]:
    """Messages in which one video part stands for each run of frames and the times before them."""
    overview = [(0.0, float(trace.scene.duration))] if trace.item else []
    windows = chain(overview, trace.windows)
    messages = []
    for message in trace.messages:
        content: list[dict[str, Any]] = []
        for index, part in enumerate(message.parts):
            following = message.parts[index + 1 : index + 2]
            if isinstance(part, str):
                if following and isinstance(following[0], FramePlaceholder):
                    continue
                if content and content[-1]["type"] == "text":
                    content[-1]["text"] += part
                else:
                    content.append({"type": "text", "text": part})
            elif not content or content[-1]["type"] != "video":
                start, end = next(windows)
                limit = trace.budget if message.role == "user" and trace.item else WINDOW_FRAMES
                content.append({"type": "video", "video": video, "start": start, "end": end, "frames": limit})
        plain = len(content) == 1 and content[0]["type"] == "text"
        row = {"role": message.role, "content": content[0]["text"] if plain else content}
        messages.append(row | ({"stopped": True} if message.stopped else {}))
    return messages


def build(
    out: Path, split: Split, count: int, seed: int, *, videos: bool = True, mix: TraceMix | None = None
) -> tuple[Path, int]:
    """Write a split into the folder `out`; returns the Parquet file and how many videos its rows name.

    About five rows share a scene. Existing videos are kept. Memory does not grow with `count`.

    Raises:
        SettingsError: a file cannot be written.
    """
    with writing(out):
        (out / "videos").mkdir(parents=True, exist_ok=True)
    path = out / f"{split}.parquet"
    seeds: set[int] = set()
    if split == "train":
        traces = (trace_at(seed, split, number, mix, shared=True) for number in range(count))
    else:
        traces = (opening_trace(question_at(seed, split, number), 64) for number in range(count))
    with (
        atomic_path(path) as scratch,
        pq.ParquetWriter(scratch, SCHEMA) as writer,
        delayed_progress("writing rows", count) as advance,
    ):
        while group := list(islice(traces, ROW_GROUP)):
            for trace in group:
                video = out / "videos" / video_name(trace.scene)
                if trace.scene.seed not in seeds and videos and not video.exists():
                    write_video(trace.scene, video)
                seeds.add(trace.scene.seed)
                advance()
            writer.write_table(pa.Table.from_pylist(list(map(trace_row, group)), schema=SCHEMA))
    return path, len(seeds)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m paravt_training.world.build", description="Write the sample world to files."
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write into")
    parser.add_argument("--split", choices=SPLITS, default="train", help="one of the disjoint splits")
    parser.add_argument("--count", type=int, required=True, help="number of rows")
    parser.add_argument("--seed", type=int, default=0, help="seed of the rows")
    parser.add_argument(
        "--videos", action=argparse.BooleanOptionalAction, default=True, help="write the videos as well as the rows"
    )
    args = parser.parse_args()
    if args.count < 1:
        parser.error(f"--count must be at least 1, not {args.count}")
    try:
        path, videos = build(args.out, args.split, args.count, args.seed, videos=args.videos)
    except SettingsError as error:
        sys.exit(str(error))
    print(f"{path}: {args.count} rows about {videos} videos")


if __name__ == "__main__":
    main()
