"""Text to answer: where the answer stands in a response, and which option or span it commits to."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from paravt_infer.times import parse_time

AnswerSource = Literal["answer_block", "after_think", "last_line"]

_BLOCK = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(r"<answer>((?:(?!<answer>).)*)\Z", re.DOTALL | re.IGNORECASE)
_CALLS = re.compile(
    r"<(tool_call|tool_code|tool_response)>.*?(?:</\1>|\Z)",
    re.DOTALL,
)
_TAG = re.compile(r"</?(?:think|answer|tool_call|tool_code|tool_response)>|<\|[a-z_]+\|>")


@dataclass(frozen=True)
class ExtractedAnswer:
    """What a response answers, and where that stood."""

    text: str
    source: AnswerSource


def extract_answer(response: str) -> ExtractedAnswer | None:
    """The answer of a response: the last `<answer>` block, else what follows `</think>`, else the last line.

    The three levels of the paper's reward appendix. Tool blocks never count. None where nothing was said;
    an answer block is read even where it was left open, and an empty one says nothing.

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
        said = _plain(blocks[-1])
        return ExtractedAnswer(said, "answer_block") if said else None
    if closed:
        said = _plain(after)
        if said:
            return ExtractedAnswer(said, "after_think")
    lines = [line for line in map(_plain, text.splitlines()) if line]
    return ExtractedAnswer(lines[-1], "last_line") if lines else None


def _plain(text: str) -> str:
    return _TAG.sub("", text).strip()


_SAME_PHRASE = r"[^\w.,;:!?\n]+"
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor|than|over|unlike|instead of|wrong|except|excludes?"
    r"|(?:no|without)(?!\s+(?:a\s+)?doubt\b))|n't)"
    rf"{_SAME_PHRASE}(?:(?!(?:but|so|then|thus|hence|therefore)\b)\w+{_SAME_PHRASE}){{0,2}}$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[\"')\]}*_]*\s+(?:cannot\b|(?:is|was|seems|does|can|could|would)(?:n't|\s+(?:not|wrong|incorrect|false)\b))",
    re.IGNORECASE,
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
    """The option that an answer's text commits to, as its letter; None where it commits to none.

    Asked in this order: the text is a letter, or an option's text; it states one ("the answer is b"), the last
    statement counting; it begins with one ("B. blue"); it mentions one ("option b"); it holds just one option's
    text; a letter in brackets; a capital alone. A letter that is denied ("not (A)", "A is wrong") is none; neither
    is an article, a pronoun, or one of several named in one breath ("A or B", "A. red B. blue").

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
    said = [letter.upper() for letter, option in options.items() if normalised_words(option) == words != []]
    if len(said) == 1:
        return said[0]
    if len(letters) > 1:
        text = _without_lists(text, options)
    if stated := _last(_STATED, text, letters):
        return stated
    text = text.lstrip(" \t\n\"'`*_([{")
    leading = _LEADING.match(text)
    if leading and leading.group(1).upper() in letters and not _DENIED_AFTER.match(text, leading.end()):
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


def _without_lists(said: str, options: Mapping[str, str]) -> str:
    """`said` without options named in one breath ("A, B or C", "A. red B. blue"): that chooses none of them."""
    items = [
        re.compile(rf"(?<!\w){letter}\s*[.):]+\s*{re.escape(text)}(?!\w)", re.IGNORECASE)
        for letter, text in options.items()
        if text
    ]
    if sum(bool(item.search(said)) for item in items) > 1:
        for item in items:
            said = item.sub(" ", said)
    letter = rf"(?<![\w'])[{''.join(options)}](?![\w'])"
    # "A" and "I" before a word are not of the list, and neither is a letter that begins a sentence of its own.
    listed = rf"{letter}(?:{_JOINT}(?![AI]{_WORD}){letter}|{_BREAK}{letter}(?!{_WORD}))+"

    def unless_one(found: re.Match[str]) -> str:
        return " " if len({one.upper() for one in re.findall(letter, found[0], re.IGNORECASE)}) > 1 else found[0]

    return re.sub(listed, unless_one, said, flags=re.IGNORECASE)


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
    said, named = normalise_text(text), set()
    wanted: dict[tuple[str, ...], set[str]] = {}
    for letter, option in options.items():
        wanted.setdefault(tuple(normalised_words(option)), set()).add(letter.upper())
    for words in sorted(filter(None, wanted), key=lambda words: len(" ".join(words)), reverse=True):
        if any(affirmed_matches(said, words)):
            named |= wanted[words]
        said = _phrase(words).sub(",", said)
    return named.pop() if len(named) == 1 else None


def _denied_before(text: str, at: int) -> bool:
    return bool(_DENIED_BEFORE.search(text[max(0, at - 60) : at]))


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
    """Text as it is compared: lower case, its words and numbers apart by one space, its pauses as commas.

    Numbers are written by their value (3.0, three and 3; 1,000 and 1000), and keep their sign and unit, which
    stands apart ("3m/s" is "3 m/s"). What is no number stays whole: 00:12, 3/4, 10^-3, 3rd. Hyphens, quotes,
    brackets, markup and articles go, but "a" at the end of a phrase is no article (vitamin A).

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
    said = token.group()
    if token.lastgroup == "number":
        return f"{Decimal(said.replace(',', '')).normalize() + 0:f}"
    return "," if token.lastgroup == "pause" else _PLAIN_WORDS.get(said, said)


def normalised_words(text: str) -> list[str]:
    """The words of `normalise_text(text)`, without its pauses."""
    return [word for word in normalise_text(text).split() if word != ","]


def _phrase(words: Sequence[str]) -> re.Pattern[str]:
    return re.compile(r"(?<!\S)" + " (?:, )*".join(map(re.escape, words)) + r"(?!\S)")


_REFUSED = re.compile(r" (?:is|was|seems) (?:wrong|incorrect|false|not (?:right|correct|answer))(?!\S)")


def affirmed_matches(said: str, words: Sequence[str]) -> Iterator[re.Match[str]]:
    """Where `words` stand together in a normalised text and are not denied ("not red", "red is wrong")."""
    for match in _phrase(words).finditer(said):
        if not _denied_before(said, match.start()) and not _REFUSED.match(said, match.end()):
            yield match


TimeSpan = tuple[float, float]

_SECONDS = r"(?:seconds?|secs?|s)(?![A-Za-z])\.?"
_TIME = (
    r"(?:\d+\s*(?:minutes?|mins?|m)(?![A-Za-z])(?:[\s,]*(?:and\s+)?\d+(?:\.\d+)?\s*" + _SECONDS + r")?"
    r"|(?:\d+:)?\d{1,3}:\d{2}(?:\.\d+)?|\d+(?:\.\d+)?)(?!\d|[.:]\d)"
)
_MARKUP = r"[\s*_\"'`<>()\[\]]{0,9}"  # what may stand around a number
_NOT_PART = r"(?<![\w.−-])(?<!\d:)(?<!\d[–—])(?<!\bframe )(?<!\bframes )"
_FIRST = rf"{_NOT_PART}(?P<start>{_TIME})\s*(?:{_SECONDS})?{_MARKUP}"
_SECOND = rf"{_MARKUP}(?:(?:about|around|approximately|at|second|t\s*=)\s*)?(?P<end>{_TIME})(?!\s*(?:%|[-–—~]\s*\d))"
_SPANS = (
    re.compile(rf"{_FIRST}(?:[-–—−~→]|->|\b(?:to|until|till|through)\b){_SECOND}", re.IGNORECASE),
    re.compile(rf"(?<!\d,)(?<!\d, ){_FIRST},{_SECOND}(?!\s*,\s*\d)", re.IGNORECASE),  # a pair, no longer list
    re.compile(rf"\bbetween\b{_MARKUP}(?:about\s+)?{_FIRST}(?:and|&){_SECOND}", re.IGNORECASE),
    re.compile(
        r"(?<![a-z])(?:start|begin|began|from|onset|occur|happen|appear)[^\d]{0,40}?"
        + _FIRST
        + r"(?:(?!(?<![a-z/])(?:start|begin|began)|(?:\bto|\buntil|[-–—~])\s*\d).){0,80}?"
        r"(?<![a-z])(?:end|finish|stop|conclude)[^\d]{0,40}?(?<![−-])(?P<end>" + _TIME + ")",
        re.IGNORECASE | re.DOTALL,
    ),
)
_IN_MINUTES = re.compile(rf"(\d+)\s*m[a-z]*(?:\D*(\d+(?:\.\d+)?)\s*{_SECONDS})?", re.IGNORECASE)


def extract_span(text: str) -> TimeSpan | None:
    """The span that an answer's text commits to, in seconds: the last it names; None where that is none.

    Read are a pair ("[5, 10]", "5 - 10", "5.0 to 10.0 seconds", "between 5 and 10"), named ends ("starts at 5 s
    and ends at 10 s", JSON with start and end), and times as numbers, clocks ("00:12.5", "1:02:03") or minutes
    and seconds. Of a whole response only its answer counts. A span that is denied is none; neither is one that
    does not begin before it ends, and numbers are never read in part.

    >>> extract_span("[12, 30]"), extract_span("00:12.5 to 00:17.8"), extract_span("starts at 5 s, ends at 9.8 s")
    ((12.0, 30.0), (12.5, 17.8), (5.0, 9.8))
    >>> extract_span("Not 3 to 4 but 1 min 5 s to 1 min 9 s"), extract_span("1.5.2, 3"), extract_span("10 to 5")
    ((65.0, 69.0), None, None)
    """
    if _TAG.search(text):
        reading = extract_answer(text)
        text = reading.text if reading else ""
    last, found = None, [match for pattern in _SPANS for match in pattern.finditer(text)]
    for match in sorted(found, key=lambda match: match.start("start")):
        overlaps = last and match.start("start") < last.end("end")  # "5 to 10, 5 long" names one span
        if not overlaps and not _denied_before(text, match.start("start")):
            last = match
    if last is None:
        return None
    said_start, said_end = last.group("start"), last.group("end")
    try:
        start, end = _to_seconds(said_start), _to_seconds(said_end)
    except ValueError:
        return None
    bare = said_start.isdigit() and not re.match(rf"\s*{_SECONDS}", text[last.end("start") :], re.IGNORECASE)
    if bare and _IN_MINUTES.fullmatch(said_end):
        start *= 60  # "2 to 3 minutes"
    return (start, end) if start < end else None


def _to_seconds(said: str) -> float:
    if minutes := _IN_MINUTES.fullmatch(said):
        return float(minutes.group(1)) * 60 + float(minutes.group(2) or 0)
    return parse_time(said)


def span_iou(left: TimeSpan | None, right: TimeSpan | None) -> float:
    """Intersection over union of two spans in seconds; 0 where one is none.

    >>> span_iou((0.0, 4.0), (2.0, 6.0))
    0.3333333333333333
    """
    if left is None or right is None:
        return 0.0
    shared = max(0.0, min(left[1], right[1]) - max(left[0], right[0]))
    union = (left[1] - left[0]) + (right[1] - right[0]) - shared
    return shared / union if union > 0 else 0.0
