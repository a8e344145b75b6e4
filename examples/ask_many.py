"""Answer a file of questions. Stop it at any time and run it again: finished questions are not asked twice.

Usage: python examples/ask_many.py [FOLDER]
"""

import asyncio
import json
import sys
from pathlib import Path

from paravt_infer import EngineSpec, Settings
from paravt_infer.batch import Batch
from paravt_infer.bundled import sample_videos


def write_questions(file: Path) -> None:
    """One JSON object per line: a video and a question; id, options, subtitles and kind are optional."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": f"sample-{number}", "video": sample.path, "question": sample.question, "options": sample.options}
        for number, sample in enumerate(sample_videos())
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


async def main(folder: Path) -> None:
    source, results = folder / "questions.jsonl", folder / "results.parquet"
    write_questions(source)
    # Each finished episode goes to results.parquet.journal at once. When all are finished it becomes results.parquet.
    # A changed question, setting or model is another question: it is asked again.
    batch = Batch(source, results, Settings(frames=16))
    async with EngineSpec().open() as engine:
        async for rollout in batch.run(engine, concurrency=4):
            print(f"{rollout.question.id}: {rollout.answer} (episode {rollout.id})", flush=True)
    print(f"written: {results}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/ask_many")))
