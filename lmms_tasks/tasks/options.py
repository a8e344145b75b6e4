"""Reading rows: options by letter, options inside a question's text, gold answers, and ids for rows without one."""

import re
import string
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lmms_tasks.tasks.base import ROW_COLUMN, Doc

_LABEL = re.compile(r"\s*[(\[]?([A-Z])[)\].:]\s*(?=\S)")


def options_by_letter(options: Iterable[Any]) -> dict[str, str]:
    """Options by letter, in their order, without the label that many data sets write before each.

    Labels are dropped where most options have theirs: two times of day "A.M." and "P.M." stay whole.

    >>> options_by_letter(["A. a cat", "B. a dog", "C.both"]), options_by_letter(["A.M.", "P.M."])
    ({'A': 'a cat', 'B': 'a dog', 'C': 'both'}, {'A': 'A.M.', 'B': 'P.M.'})
    """
    by_letter = dict(zip(string.ascii_uppercase, (str(option).strip() for option in options), strict=False))
    unlabelled = {
        letter: text[label.end() :]
        for letter, text in by_letter.items()
        if (label := _LABEL.match(text)) and label.group(1) == letter
    }
    return by_letter | unlabelled if 2 * len(unlabelled) > len(by_letter) else by_letter


def split_question(question: str, listed: Iterable[Any] | None = None) -> tuple[str, dict[str, str]]:
    """A question and its options by letter, where its text may contain them too.

    Options in a text are lines "(A) x", "A. x", "A) x" or "A: x", in the order of their letters, any number of
    them; or the first of these forms within one line.

    Args:
        listed: the options, where a column lists them.

    >>> split_question("Who?\\n(A) Ann\\n(B) Bo")
    ('Who?', {'A': 'Ann', 'B': 'Bo'})
    """
    stem, options = _split_lines(question.splitlines())
    if not options:
        stem, options = _split_lines(re.sub(r"\s+(?=\([A-Z]\)\s*\S)", "\n", question).splitlines())
    if not options:
        stem = question.strip()
    return stem, options_by_letter(listed) if listed else options


def _split_lines(lines: list[str]) -> tuple[str, dict[str, str]]:
    """The lines before the last "A" that a "B" follows, and the options from there on."""
    matches = [_LABEL.match(line) for line in lines]
    labels = [match.group(1) if match else "" for match in matches]
    starts = [index for index, label in enumerate(labels) if label == "A" and "B" in labels[index:]]
    if not starts:
        return "", {}
    texts: list[str] = []
    for label, line in zip(labels[starts[-1] :], lines[starts[-1] :], strict=True):
        if label and label == string.ascii_uppercase[len(texts)]:
            texts.append(_LABEL.sub("", line, count=1).strip())
        else:  # a further line of the option before
            texts[-1] = f"{texts[-1]} {line.strip()}".strip()
    return "\n".join(lines[: starts[-1]]).strip(), dict(zip(string.ascii_uppercase, texts, strict=False))


def gold_letter(answer: Any, options: Mapping[str, str]) -> str:
    """The right option's letter, from an answer that is a letter or an option's text.

    Raises:
        ValueError: it is neither.
    """
    text = str(answer).strip()
    letter = text.strip("(). ").upper()
    if letter in options:
        return letter
    matching = [letter for letter, option in options.items() if option == text]
    if len(matching) != 1:
        raise ValueError(f"the answer {text!r} is not among the options {', '.join(options)}")
    return matching[0]


def row_id(video: str, doc: Doc, fallback: str) -> str:
    """An id for a row that has none: its number where `Benchmark.process_docs` added it, else `fallback`."""
    return f"{Path(video).stem}#{doc.get(ROW_COLUMN, fallback)}"
