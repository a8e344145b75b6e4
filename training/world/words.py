"""The closed vocabulary of everything that is said in the sample world, protocols included.

A word is what Qwen's pre-tokenizer makes of plain English text: a run of letters with the one sign or space
before it, a single digit, a run of signs; and each tag of the protocols is a word of its own.
"""

import re
from functools import lru_cache

from paravt_training.world.scene import COLOURS, SHAPES
from paravt_training.world.stream import Mix, trace_at

TAGS = tuple(
    f"<{slash}{name}>" for name in ("think", "answer", "tool_call", "tool_response", "tool_code") for slash in ("", "/")
)
NAMES = tuple(f"{space}{colour} {shape}" for space in (" ", "") for colour in COLOURS for shape in SHAPES)
"""What the world's things are called, each one token: a small model then finds a thing by one look, not by two."""
_WHOLE = re.compile("(" + "|".join((*TAGS, *NAMES)) + ")")
_PIECE = re.compile(
    r"'(?:[sdmt]|ll|ve|re)|[^\r\na-z0-9]?[a-z]+|[0-9]| ?[^\sa-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", re.IGNORECASE
)


def words(text: str) -> list[str]:
    """The words of a text; joined, they are the text again.

    >>> words("at 00:40 a red star.")
    ['at', ' ', '0', '0', ':', '4', '0', ' a', ' red star', '.']
    """
    return [
        piece
        for part in _WHOLE.split(text)
        for piece in ([part] if part in TAGS or part in NAMES else _PIECE.findall(part))
        if piece
    ]


@lru_cache(maxsize=1)
def vocabulary() -> list[str]:
    """Every word that traces of any kind hold, sorted.

    Read from traces, of which there are enough to hold each wording with each colour and shape. Takes seconds.
    """
    mix = Mix(perception=1, parallel=1, sequential=1, overview=1, reasoning=1, direct=1, frames=0.5, tool_code=0.5)
    parts = {*TAGS, "system\n", "user\n", "assistant\n"}
    for number in range(2000):
        for said in trace_at(0, "train", number, mix).messages:
            parts.update(part for part in said.parts if isinstance(part, str))
    return sorted({word for part in parts for word in words(part)})
