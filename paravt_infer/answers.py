"""Text to answer: where the answer stands in a response, and which option or span it commits to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Source = Literal["answer_block", "after_think", "last_line"]

_BLOCK = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(r"<answer>((?:(?!<answer>).)*)\Z", re.DOTALL | re.IGNORECASE)
_CALLS = re.compile(
    r"<(tool_call|tool_code|tool_response)>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
_TAG = re.compile(r"</?(?:think|answer|tool_call|tool_code|tool_response)>|<\|[a-z_]+\|>")


@dataclass(frozen=True)
class Reading:
    """What a response answers, and where that stood."""

    text: str
    source: Source


def read_answer(response: str) -> Reading | None:
    """The answer of a response: the last `<answer>` block, else what follows `</think>`, else the last line.

    The three levels of the paper's reward appendix. Tool blocks never count. None where nothing was said;
    an answer block is read even where it was left open, and an empty one says nothing.

    >>> read_answer("<think>a red one</think><answer>B</answer>")
    Reading(text='B', source='answer_block')
    """
    _, closed, after = response.rpartition("</think>")
    text, after = _CALLS.sub("", response), _CALLS.sub("", after)
    blocks = _BLOCK.findall(after) or _BLOCK.findall(text)
    left_open = _OPEN.search(after)
    if left_open and "</answer>" not in left_open.group(1).lower():
        blocks.append(left_open.group(1))
    if blocks:
        said = _plain(blocks[-1])
        return Reading(said, "answer_block") if said else None
    if closed:
        said = _plain(after)
        if said:
            return Reading(said, "after_think")
    lines = [line for line in map(_plain, text.splitlines()) if line]
    return Reading(lines[-1], "last_line") if lines else None


def _plain(text: str) -> str:
    return _TAG.sub("", text).strip()


_SAME_PHRASE = r"[^\w.,;:!?\n]+"
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|\bnever|n't|\bneither|\bnor|\brather than|\binstead of|\bwrong|\bexcept)"
    rf"{_SAME_PHRASE}(?:(?!(?:but|so|then|thus|hence|therefore)\b)\w+{_SAME_PHRASE}){{0,2}}$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[\"')\]}*_]*\s+(?:cannot\b|(?:is|was|seems|does|can|could|would)(?:n't|\s+(?:not|wrong|incorrect|false)\b))",
    re.IGNORECASE,
)
_NO_NOUN = r"\s+(?!(?:is|because|since|as|and|or|but)\b)"
_ARTICLE, _PRONOUN = re.compile(_NO_NOUN + "[a-z]"), re.compile(_NO_NOUN + "[a-z]", re.IGNORECASE)

_LETTER = r"[\s\"'(\[{*_:=]*([A-Za-z])(?![A-Za-z0-9'])"
_STATED = re.compile(
    r"\banswer\b[\s*_]*(?:(?:would|must|should|could)\s+be\b|(?:is|was|be)\b|[:=])"
    rf"(?:[\s*_:]*(?:the\s+)?(?:option|choice|letter)\b)?{_LETTER}",
    re.IGNORECASE,
)
_MENTIONED = re.compile(rf"\b(?:answer|option|choice|letter)\b{_LETTER}", re.IGNORECASE)
_ENCLOSED = re.compile(r"[(\[]\s*([A-Za-z])\s*[)\]]")
_LEADING = re.compile(r"([A-Za-z])[^\S\n]*(?:\n|$|[*\"`)\]}]|[.:](?!\s*[a-z]\.))")  # not "e.g. this"
_ALONE = re.compile(r"(?<![A-Za-z0-9'])(?<![A-Z]\.)([A-Z])(?![A-Za-z0-9'+#]|-[A-Za-z])")
_BOXED = re.compile(r"\\boxed\s*\{(?:\s*\\text\s*\{)?([^{}]*)\}")


def read_choice(text: str, options: Mapping[str, str]) -> str | None:
    """The option that an answer's text commits to, as its letter; None where it commits to none.

    Asked in this order: the text is a letter, or an option's text; it states one ("the answer is b"), the last
    statement counting; it begins with one ("B. blue"); it mentions one ("option b"); it holds just one option's
    text; a letter in brackets; a capital alone. A letter that is denied ("not (A)", "A is wrong") is none, and
    neither is an article or a pronoun.

    >>> read_choice("A man walks, so the answer is C", {"A": "no", "B": "yes", "C": "maybe"})
    'C'
    """
    boxed = _BOXED.findall(text)
    text = (boxed[-1] if boxed else text).strip().replace("’", "'")
    bare = text.strip(" \t\n\"'`*_()[]{}.,:;!$")
    letters = {letter.upper() for letter in options}
    if len(bare) == 1 and bare.upper() in letters:
        return bare.upper()
    said = [letter.upper() for letter, option in options.items() if _normal(option) == _normal(text) != ""]
    if len(said) == 1:
        return said[0]
    if stated := _last(_STATED, text, letters):
        return stated
    leading = _LEADING.match(text.lstrip(" \t\n\"'`*_([{"))
    if leading and leading.group(1).upper() in letters:
        return leading.group(1).upper()
    return (
        _last(_MENTIONED, text, letters)
        or _named_option(text, options)
        or _last(_ENCLOSED, text, letters)
        or _last(_ALONE, text, letters)
    )


def _last(pattern: re.Pattern[str], text: str, letters: set[str]) -> str | None:
    """The last letter that `pattern` finds, is no word of its own, and is not denied."""
    found = None
    for match in pattern.finditer(text):
        letter, start, end = match.group(1), match.start(1), match.end(1)
        word = _PRONOUN if letter in "iI" else _ARTICLE if letter in "aA" else None
        if letter.upper() not in letters or (word and word.match(text, end)):
            continue
        if _denied_before(text, start) or _DENIED_AFTER.match(text, end):
            continue
        found = letter.upper()
    return found


def _named_option(text: str, options: Mapping[str, str]) -> str | None:
    """The one option whose text stands in `text`, undenied; a longer option hides those inside it."""
    said, named = _normal(text), set()
    wanted: dict[str, set[str]] = {}
    for letter, option in options.items():
        wanted.setdefault(_normal(option), set()).add(letter.upper())
    for option in sorted(filter(None, wanted), key=len, reverse=True):
        found = re.compile(rf"(?<!\w)(?<!\d\.){re.escape(option)}(?!\w|\.\d)")
        if any(not _denied_before(said, match.start()) for match in found.finditer(said)):
            named |= wanted[option]
        said = found.sub(",", said)
    return named.pop() if len(named) == 1 else None


def _denied_before(text: str, at: int) -> bool:
    return bool(_DENIED_BEFORE.search(text[max(0, at - 60) : at]))


def _normal(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s'.%/+-]", " ", text.casefold()).split()).strip(" .")
