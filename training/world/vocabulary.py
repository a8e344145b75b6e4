"""The closed vocabulary of all texts of the sample world, protocols included.

A word is what Qwen's pre-tokenizer makes of plain English text: a run of letters with the sign or space before it, a
single digit, or a run of signs. Each tag of the protocols and each shape's name is a word of its own.
"""

import re
from functools import lru_cache

from paravt_training.recipe import TraceMix
from paravt_training.world.scene import COLOURS, SHAPES
from paravt_training.world.stream import trace_at

PROTOCOL_TAGS = tuple(
    f"<{slash}{name}>" for name in ("think", "answer", "tool_call", "tool_response", "tool_code") for slash in ("", "/")
)
SHAPE_NAMES = tuple(f"{space}{colour} {shape}" for space in (" ", "") for colour in COLOURS for shape in SHAPES)
"""Names of the shapes, each one token: a small model then finds a shape with one attention step instead of two."""
_SINGLE_TOKENS = re.compile("(" + "|".join((*PROTOCOL_TAGS, *SHAPE_NAMES)) + ")")
_PIECE = re.compile(
    r"'(?:[sdmt]|ll|ve|re)|[^\r\na-z0-9]?[a-z]+|[0-9]| ?[^\sa-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", re.IGNORECASE
)


def split_words(text: str) -> list[str]:
    """The words of a text; joined, they give the text again.

    >>> split_words("at 00:40 a red star.")
    ['at', ' ', '0', '0', ':', '4', '0', ' a', ' red star', '.']
    """
    return [
        piece
        for part in _SINGLE_TOKENS.split(text)
        for piece in ([part] if part in PROTOCOL_TAGS or part in SHAPE_NAMES else _PIECE.findall(part))
        if piece
    ]


@lru_cache(maxsize=1)
def vocabulary() -> list[str]:
    """Every word that occurs in traces of any kind, sorted.

    Collected from enough traces to hold each wording with each colour and shape, which takes seconds.
    """
    mix = TraceMix(perception=1, parallel=1, sequential=1, overview=1, reasoning=1, direct=1, frames=0.5, tool_code=0.5)
    parts = {*PROTOCOL_TAGS, "system\n", "user\n", "assistant\n"}
    for number in range(2000):
        for message in trace_at(0, "train", number, mix).messages:
            parts.update(part for part in message.parts if isinstance(part, str))
    return sorted({word for part in parts for word in split_words(part)})
