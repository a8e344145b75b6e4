"""Extracts the chosen option from the text of a multiple-choice answer."""

import re
from collections.abc import Mapping

from paravt_infer.answers.text import (
    DENIED_AFTER,
    affirmed_matches,
    is_denied_before,
    normalise_text,
    normalised_words,
    phrase_pattern,
)

_NO_NOUN = r"\s+(?!(?:is|because|since|as|and|or|but|over|rather|instead|not)\b)"
_ARTICLE, _PRONOUN = re.compile(_NO_NOUN + "[a-z]"), re.compile(_NO_NOUN + "[a-z]", re.IGNORECASE)

_NO_WORD = r"(?![A-Za-z0-9'+#]|-[A-Za-z])"
_LETTER = rf"[\s\"'(\[{{*_:=]*([A-Za-z]){_NO_WORD}"
_STATED = re.compile(
    r"(?:\banswer\b[\s*_]*(?:(?:would|must|should|could)\s+be\b|(?:is|was|be)\b|[:=])|\b(?:wait|actually)\b[\s,:]*)"
    rf"(?:[\s*_:]*(?:the\s+)?(?:option|choice|letter)\b)?{_LETTER}",
    re.IGNORECASE,
)
_MENTIONED = re.compile(
    rf"\b(?:answer|option|choice|letter|it's|it\s+is|choose|pick|select|go\s+with)\b{_LETTER}", re.IGNORECASE
)
_ENCLOSED = re.compile(r"[(\[]\s*([A-Za-z])\s*[)\]]")
_LEADING = re.compile(r"([A-Za-z])[^\S\n]*(?:\n|$|[*\"`)\]}]|[.:](?!\s*[a-z]\.))")  # not "e.g. this"
_ALONE = re.compile(rf"(?<![A-Za-z0-9'])(?<![A-Z]\.)([A-Z]){_NO_WORD}")
_BOXED = re.compile(r"\\boxed\s*\{(?:\s*\\text\s*\{)?([^{}]*)\}")


def extract_choice(text: str, options: Mapping[str, str]) -> str | None:
    """The letter of the option that an answer's text chooses; None if it chooses none.

    Tried in this order: the text is a letter, or an option's text; it states a letter ("the answer is b"), of which the
    last counts; it begins with one ("B. blue"); it mentions one ("option b"); it contains the text of exactly one
    option; a letter in brackets; a single capital. Letters that are denied ("not (A)", "A is wrong") do not count, nor
    do articles, pronouns, or letters in a list ("A or B", "A. red B. blue").

    >>> extract_choice("A man walks, so the answer is C", {"A": "no", "B": "yes", "C": "maybe"})
    'C'
    """
    boxed = _BOXED.findall(text)
    text = (boxed[-1] if boxed else text).strip().replace("’", "'")
    bare = text.strip(" \t\n\"'`*_()[]{}.,:;!$")
    letters = {letter.upper() for letter in options}
    if len(bare) == 1 and bare.upper() in letters:
        return bare.upper()
    words = normalised_words(text)
    matching = [letter.upper() for letter, option in options.items() if normalised_words(option) == words != []]
    if len(matching) == 1:
        return matching[0]
    if len(letters) > 1:
        text = _without_lists(text, options)
    if stated := _last(_STATED, text, letters):
        return stated
    text = text.lstrip(" \t\n\"'`*_([{")
    leading = _LEADING.match(text)
    if leading and leading.group(1).upper() in letters and not DENIED_AFTER.match(text, leading.end()):
        return leading.group(1).upper()
    return (
        _last(_MENTIONED, text, letters)
        or _named_option(text, options)
        or _last(_ENCLOSED, text, letters)
        or _last(_ALONE, text, letters)
    )


_JOINT = r"(?:[^\w\s.;]|[^\S\n]|\b(?:and|or|option|choice|letter)\b)*"
_BREAK = r"[^\w.\n]*[.\n]\W*"
_WORD = r"\s+(?!(?:and|or)\b)(?-i:[a-z]{2})"


def _without_lists(text: str, options: Mapping[str, str]) -> str:
    """`text` without lists of options ("A, B or C", "A. red B. blue"), which choose none of them."""
    items = [
        re.compile(rf"(?<!\w){letter}\s*[.):]+\s*{re.escape(option)}(?!\w)", re.IGNORECASE)
        for letter, option in options.items()
        if option
    ]
    if sum(bool(item.search(text)) for item in items) > 1:
        for item in items:
            text = item.sub(" ", text)
    letter = rf"(?<![\w'])[{''.join(options)}](?![\w'])"
    # "A" and "I" before a word do not belong to the list, nor does a letter that begins a sentence.
    listed = rf"{letter}(?:{_JOINT}(?![AI]{_WORD}){letter}|{_BREAK}{letter}(?!{_WORD}))+"

    def blank(found: re.Match[str]) -> str:
        letters = {match.upper() for match in re.findall(letter, found[0], re.IGNORECASE)}
        return " " if len(letters) > 1 else found[0]

    return re.sub(listed, blank, text, flags=re.IGNORECASE)


def _last(pattern: re.Pattern[str], text: str, letters: set[str]) -> str | None:
    """The last letter that `pattern` finds, unless it is a word or denied."""
    found = None
    for match in pattern.finditer(text):
        letter, start, end = match.group(1), match.start(1), match.end(1)
        word = _PRONOUN if letter in "iI" else _ARTICLE if letter in "aA" else None
        if letter.upper() not in letters or (word and word.match(text, end)):
            continue
        if is_denied_before(text, start) or DENIED_AFTER.match(text, end):
            continue
        found = letter.upper()
    return found


def _named_option(text: str, options: Mapping[str, str]) -> str | None:
    """The only option whose text occurs in `text` without being denied. A longer option hides those inside it."""
    remaining, named = normalise_text(text), set()
    wanted: dict[tuple[str, ...], set[str]] = {}
    for letter, option in options.items():
        wanted.setdefault(tuple(normalised_words(option)), set()).add(letter.upper())
    for words in sorted(filter(None, wanted), key=lambda words: len(" ".join(words)), reverse=True):
        if any(affirmed_matches(remaining, words)):
            named |= wanted[words]
        remaining = phrase_pattern(words).sub(",", remaining)
    return named.pop() if len(named) == 1 else None
