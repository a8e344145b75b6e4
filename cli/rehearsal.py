"""`paravt ask --rehearse`: the whole loop with a random model, its turns held to the protocol's form.

It shows the mechanics where no model can be had: real frames, real parallel sub-agents, real tokens. The random
model understands nothing; its words and its answer mean nothing, and everything it prints says so.
"""

import os
import re
import tempfile
from pathlib import Path

from paravt_infer.questions import Question
from paravt_infer.settings import Settings
from paravt_infer.video.readers import read_index

WINDOWS = 3


def random_checkpoint() -> str:
    """The folder of the random checkpoint, made on first use."""
    from training.tiny import build_tiny

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paravt"
    folder = cache / "random-1"
    if not (folder / "config.json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        made = build_tiny(Path(tempfile.mkdtemp(dir=cache)))
        if not folder.exists():
            made.rename(folder)
    return str(folder)


def rehearsal_settings(settings: Settings, question: Question) -> Settings:
    """`settings` with a form for each turn: calls for windows spread over the video, then an answer."""
    duration = read_index(question.video).info.duration
    slot = duration / WINDOWS
    spans = [(slot * (i + 0.3), slot * (i + 0.7)) for i in range(WINDOWS)]
    if settings.dispatch == "sequential":
        spans = spans[:1]
    blocks = (
        '<tool_call>{"name": "crop_video", "arguments": {"video_path": "v", '
        f'"start_time": {start:.1f}, "end_time": {end:.1f}}}}}</tool_call>'
        for start, end in spans
    )
    letters = "".join(question.options)
    answer = f"[{letters}]" if letters else "[a-z]{3,8}"
    calls = re.sub(r"([{}().?*+|\[\]^$\\])", r"\\\1", "".join(blocks))
    turns = (
        f"<think>[a-z ]{{8,24}}</think>{calls}",
        f"<think>[a-z ]{{8,24}}</think><answer>{answer}</answer>",
    )
    return settings.model_copy(
        update={
            "turn_regex": turns if settings.protocol in ("paravt", "tools") else turns[1:],
            "temperature": settings.temperature or 1.0,
            "seed": settings.seed if settings.seed is not None else 0,
            "summary_tokens": min(settings.summary_tokens, 24),
            # A random model sees nothing in more or larger frames either.
            "frames": min(settings.frames, 16),
            "min_pixels": min(settings.min_pixels, 12544),
            "max_pixels": min(settings.max_pixels, 12544),
        }
    )
