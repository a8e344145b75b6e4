"""Whether an open-ended answer says what the gold answer says."""

import re
from collections.abc import Sequence

from paravt_infer.answers import affirmed_matches, normalise_text, normalised_words

_OPPOSITES = ({"yes", "no"}, {"true", "false"}, {"left", "right"}, {"up", "down"})
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ACRONYM = re.compile(r"^(.*\S)\s*\(([A-Z][A-Za-z]*[A-Z])\)$", re.DOTALL)


def is_right(answer: str, gold: str) -> bool:
    """Whether `answer` commits to `gold`. Both are compared as `normalise_text` writes them.

    An answer is right if it equals the gold, or if the gold occurs in it as whole words and is not denied, unless
    the answer also commits to an alternative:

    - an "or": "BFS or DFS" is neither;
    - where the gold is a number, with or without a unit: another number with that unit, any other number where the
      gold has none (numbers are equal by value; clocks, fractions and the like do not count as numbers);
    - where the gold is yes, no, true, false, left, right, up or down: its opposite. But an answer that begins with
      yes or no counts as that one.

    A gold with its acronym in brackets, "depth-first search (DFS)", matches either. Nothing else is guessed: an empty
    answer, part of the gold, and a paraphrase are wrong. The scorer `judge` recognises paraphrases.

    >>> is_right("The speed is 3.0m/s.", "3 m/s"), is_right("30 m/s", "3 m/s"), is_right("", "BFS")
    (True, False, False)
    >>> answer = "It is not depth-first search but BFS"
    >>> is_right(answer, "BFS"), is_right(answer, "depth-first search")
    (True, False)
    """
    text, words = normalise_text(answer), normalised_words(answer)
    if not normalised_words(gold):  # nothing but punctuation
        return answer.strip() == gold.strip() != ""
    return any(words == form or _commits(text, form) for form in _forms(gold))


def _forms(gold: str) -> list[list[str]]:
    forms = [normalised_words(gold)]
    if match := _ACRONYM.match(gold.strip()):
        name, short = normalised_words(match.group(1)), normalised_words(match.group(2))
        if "".join(word[0] for word in name) == "".join(short):
            forms += [name, short]
    if forms[0] in (["1"], ["one"]):  # "one" is often a pronoun: `normalise_text` leaves it
        return [["1"], ["one"]]
    return forms


def _commits(text: str, form: Sequence[str]) -> bool:
    spans = [match.span() for match in affirmed_matches(text, form)]
    if not spans:
        return False
    if any(re.match(r" (?:, )?or(?!\S)", text[end:]) or text[:start].endswith(" or ") for start, end in spans):
        return False
    if _NUMBER.fullmatch(form[0]):
        unit = form[1:]
        others = {word for word in text.split() if _NUMBER.fullmatch(word)} - {form[0]}
        return not any(any(affirmed_matches(text, [other, *unit])) for other in others)
    for pair in _OPPOSITES:
        if len(form) == 1 and form[0] in pair:
            first, [other] = text.split()[0], pair - {form[0]}
            return first == form[0] if first in _OPPOSITES[0] else not any(affirmed_matches(text, [other]))
    return True
