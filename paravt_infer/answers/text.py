"""Finds the answer in a response, and normalises text for comparison."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

AnswerSource = Literal["answer_block", "after_think", "last_line"]

_BLOCK = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(r"<answer>((?:(?!<answer>).)*)\Z", re.DOTALL | re.IGNORECASE)
_CALLS = re.compile(r"<(tool_call|tool_code|tool_response)>.*?(?:</\1>|\Z)", re.DOTALL)
TAG = re.compile(r"</?(?:think|answer|tool_call|tool_code|tool_response)>|<\|[a-z_]+\|>")


@dataclass(frozen=True)
class ExtractedAnswer:
    """The answer in a response, and where it was found."""

    text: str
    source: AnswerSource


def extract_answer(response: str) -> ExtractedAnswer | None:
    """The answer in a response: the last `<answer>` block, else the text after `</think>`, else the last line.

    These are the three levels of the paper's reward appendix. Tool blocks never count. An unclosed answer block counts.
    None if the response, or its answer block, is empty.

    >>> extract_answer("<think>a red one</think><answer>B</answer>")
    ExtractedAnswer(text='B', source='answer_block')
    """
    _, closed, after = response.rpartition("</think>")
    text, after = _CALLS.sub("", response), _CALLS.sub("", after)
    blocks = _BLOCK.findall(after) or _BLOCK.findall(text)
    left_open = _OPEN.search(after)
    if left_open and "</answer>" not in left_open.group(1).lower():
        blocks.append(left_open.group(1))
    if blocks:
        answer = _without_tags(blocks[-1])
        return ExtractedAnswer(answer, "answer_block") if answer else None
    if closed and (answer := _without_tags(after)):
        return ExtractedAnswer(answer, "after_think")
    lines = [line for line in map(_without_tags, text.splitlines()) if line]
    return ExtractedAnswer(lines[-1], "last_line") if lines else None


def _without_tags(text: str) -> str:
    return TAG.sub("", text).strip()


_POWER = re.compile("[¹²³⁰⁴-⁹]+")
_TOKEN = re.compile(
    r"(?P<lump>\d+(?:(?:st|nd|rd|th|d)\b|(?:\.\d+){2,}|(?:,\d{3})*(?:\.\d+)?(?:[:/^]-?\d+(?:\.\d+)?)+))"
    r"|(?P<number>(?:(?<![\w)])-)?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\w)\.\d+))"
    r"|(?P<word>[^\W\d_][^\W_]*(?:['^/*&]+[^\W_]+|[+#%°]+)*|[%°$€£][^\W\d_]*)"
    r"|(?P<pause>[.,;:!?\n]+)"
)
_COUNTS = ("zero", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_PLAIN_WORDS = {"percent": "%"} | {word: str(number) for number, word in enumerate(_COUNTS) if word}


def normalise_text(text: str) -> str:
    """Text for comparison: lower case, words and numbers separated by one space, and punctuation as commas.

    Numbers are normalised by value (3.0, three and 3; 1,000 and 1000); their sign and unit are kept, the unit as a
    separate word ("3m/s" is "3 m/s"). Clocks, fractions, powers and ordinals stay whole: 00:12, 3/4, 10^-3, 3rd.
    Hyphens, quotes, brackets, markup and articles are removed, but "a" at the end of a phrase is kept (vitamin A).

    >>> normalise_text("The Depth-First search: **3.0m/s**.")
    'depth first search , 3 m/s ,'
    >>> normalise_text("-1,000 at 00:12"), normalise_text("O(n²)")
    ('-1000 at 00:12', 'o n^2')
    """
    text = _POWER.sub(lambda power: "^" + power.group(), text).replace("’", "'").replace("−", "-")
    found = _TOKEN.finditer(unicodedata.normalize("NFKC", text).casefold())
    tokens = [_plain_token(token) for token in found]
    kept = [
        token
        for token, after in zip(tokens, [*tokens[1:], ","], strict=False)
        if token != "the" and (token not in ("a", "an") or after == ",")
    ]
    return " ".join(kept or tokens)


def _plain_token(token: re.Match[str]) -> str:
    text = token.group()
    if token.lastgroup == "number":
        return f"{Decimal(text.replace(',', '')).normalize() + 0:f}"
    return "," if token.lastgroup == "pause" else _PLAIN_WORDS.get(text, text)


def normalised_words(text: str) -> list[str]:
    """The words of `normalise_text(text)`, without the commas."""
    return [word for word in normalise_text(text).split() if word != ","]


def phrase_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Matches these words in a row in a normalised text, commas between them ignored."""
    return re.compile(r"(?<!\S)" + " (?:, )*".join(map(re.escape, words)) + r"(?!\S)")


_SAME_PHRASE = r"[^\w.,;:!?\n]+"
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor|than|over|unlike|instead of|wrong|except|excludes?"
    r"|(?:no|without)(?!\s+(?:a\s+)?doubt\b))|n't)"
    rf"{_SAME_PHRASE}(?:(?!(?:but|so|then|thus|hence|therefore)\b)\w+{_SAME_PHRASE}){{0,2}}$",
    re.IGNORECASE,
)
DENIED_AFTER = re.compile(
    r"[\"')\]}*_]*\s+(?:cannot\b|(?:is|was|seems|does|can|could|would)(?:n't|\s+(?:not|wrong|incorrect|false)\b))",
    re.IGNORECASE,
)


def is_denied_before(text: str, position: int) -> bool:
    """Whether the words before `position` deny what follows ("not", "rather than")."""
    return bool(_DENIED_BEFORE.search(text[max(0, position - 60) : position]))


_REFUSED = re.compile(r" (?:is|was|seems) (?:wrong|incorrect|false|not (?:right|correct|answer))(?!\S)")


def affirmed_matches(normalised: str, words: Sequence[str]) -> Iterator[re.Match[str]]:
    """Occurrences of a phrase in a normalised text that are not denied ("not red", "red is wrong")."""
    for match in phrase_pattern(words).finditer(normalised):
        if not is_denied_before(normalised, match.start()) and not _REFUSED.match(normalised, match.end()):
            yield match
