"""Text to answer: where the answer stands in a response, and which option or span it commits to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Source = Literal["answer_block", "after_think", "last_line"]

_BLOCK = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
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
    text = _CALLS.sub("", response)
    blocks = _BLOCK.findall(_CALLS.sub("", after) if closed else text) or _BLOCK.findall(text)
    left_open = _OPEN.search(text)
    if left_open and "</answer>" not in left_open.group(1).lower():
        blocks.append(left_open.group(1))
    if blocks:
        said = _plain(blocks[-1])
        return Reading(said, "answer_block") if said else None
    if closed:
        said = _plain(_CALLS.sub("", after))
        if said:
            return Reading(said, "after_think")
    lines = [line for line in map(_plain, text.splitlines()) if line]
    return Reading(lines[-1], "last_line") if lines else None


def _plain(text: str) -> str:
    return _TAG.sub("", text).strip()


_NEGATION = re.compile(
    r"(?:\bnot|\bnever|n't|\bneither|\bnor|\brather than|\binstead of|\bwrong|\bexcept)\W*(?:\w+\W+){0,2}$",
    re.I,
)
_STATED = re.compile(
    r"\b(?:final answer|correct answer|right answer|best answer|answer|option|choice)\b"
    r"(?:\s+(?:would be|must be|should be|is|was|be)|\s*[:=])?\s*(?:option|choice|letter)?\s*"
    r"[:=]?\s*[\"'(\[{*_]*([A-Za-z])(?![A-Za-z'’])",
    re.IGNORECASE,
)
_ENCLOSED = re.compile(r"[(\[]\s*([A-Za-z])\s*[)\]]")
_LEADING = re.compile(r"([A-Za-z])\s*(?:[.:)\]]|$)")
_ALONE = re.compile(r"(?<![A-Za-z'’])([A-Z])(?![A-Za-z'’])")
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\text\s*\{)?\s*([^{}]*?)\s*\}+")


def read_choice(text: str, options: Mapping[str, str]) -> str | None:
    """The option that an answer's text commits to, as its letter; None where it commits to none.

    Asked in this order: the text is a letter; it begins with one; it states one ("the answer is b"), the last
    statement counting; it is, or names just one, option's text; a letter in brackets; a capital alone.
    A letter after a negation ("not (A)") is none.

    >>> read_choice("A man walks, so the answer is C", {"A": "no", "B": "yes", "C": "maybe"})
    'C'
    """
    boxed = _BOXED.findall(text)
    text = (boxed[-1] if boxed else text).strip()
    bare = text.strip(" \t\n\"'`*_()[]{}.,:;!$")
    letters = {letter.upper() for letter in options}
    if len(bare) == 1 and bare.upper() in letters:
        return bare.upper()
    by_text = {_normal(option): letter.upper() for letter, option in options.items()}
    if _normal(text) in by_text and list(map(_normal, options.values())).count(_normal(text)) == 1:
        return by_text[_normal(text)]
    opening = text.lstrip(" \t\n\"'`*_([{")
    leading = _LEADING.match(opening)
    if leading and leading.group(1).upper() in letters:
        return leading.group(1).upper()
    for pattern in (_STATED,):
        stated = _last(pattern, text, letters, need_capital_a=True)
        if stated:
            return stated
    named = _named_option(text, options)
    if named:
        return named
    for pattern in (_ENCLOSED, _ALONE):
        found = _last(pattern, text, letters, need_capital_a=pattern is _ALONE)
        if found:
            return found
    return None


def _last(pattern: re.Pattern[str], text: str, letters: set[str], *, need_capital_a: bool) -> str | None:
    """The last letter that `pattern` finds and nothing before it denies."""
    found = None
    for match in pattern.finditer(text):
        letter, start = match.group(1), match.start(1)
        if letter.upper() not in letters or _NEGATION.search(text[:start].rstrip(" ([*_\"'")):
            continue
        if need_capital_a and letter in "aAI" and re.match(r"\s+[a-z]", text[match.end(1) :]):
            continue  # an article or a pronoun: "the answer is a man", "I see"
        found = letter.upper()
    return found


def _named_option(text: str, options: Mapping[str, str]) -> str | None:
    """The one option whose text stands in `text`, undenied; a longer option hides those inside it."""
    said = _normal(text)
    hits: list[tuple[int, int, str]] = []
    for letter, option in options.items():
        wanted = _normal(option)
        for match in re.finditer(rf"(?<!\w){re.escape(wanted)}(?!\w)", said) if wanted else ():
            if not _NEGATION.search(said[: match.start()].rstrip()):
                hits.append((match.start(), match.end(), letter.upper()))
    outer = {
        letter
        for start, end, letter in hits
        if not any(s <= start and end <= e and (s, e) != (start, end) for s, e, _ in hits)
    }
    return outer.pop() if len(outer) == 1 else None


def _normal(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s'.%/+-]", " ", text.casefold()).split()).strip(" .")
