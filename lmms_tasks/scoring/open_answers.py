"""Whether a free answer says what the right one says."""

import re
from collections.abc import Sequence

from paravt_infer.answers import affirmed_matches, normalise_text, normalised_words

_OPPOSITES = ({"yes", "no"}, {"true", "false"}, {"left", "right"}, {"up", "down"})
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ACRONYM = re.compile(r"^(.*\S)\s*\(([A-Z][A-Za-z]*[A-Z])\)$", re.DOTALL)


def is_right(answer: str, gold: str) -> bool:
    """Whether `answer` commits to `gold`. Both are compared as `normalise_text` writes them.

    Right is an answer that equals the gold; or one in which the gold stands as whole words, undenied, unless it
    commits to another of its kind as well:

    - to a choice: "BFS or DFS" is neither;
    - where the gold is a number, with or without a unit: to another number with that unit, to any other number
      where the gold has none (numbers are equal by value; clocks, fractions and the like are no numbers here);
    - where the gold is yes, no, true, false, left, right, up or down: to its opposite. But an answer that
      begins with yes or no is that one.

    A gold with its acronym in brackets, "depth-first search (DFS)", may be given by either. Nothing else is guessed:
    an empty answer, part of the gold, and the same thing in other words are wrong. `judge` can tell the last.

    >>> is_right("The speed is 3.0m/s.", "3 m/s"), is_right("30 m/s", "3 m/s"), is_right("", "BFS")
    (True, False, False)
    >>> said = "It is not depth-first search but BFS"
    >>> is_right(said, "BFS"), is_right(said, "depth-first search")
    (True, False)
    """
    said, words = normalise_text(answer), normalised_words(answer)
    if not normalised_words(gold):  # nothing but punctuation
        return answer.strip() == gold.strip() != ""
    return any(words == form or _commits(said, form) for form in _forms(gold))


def _forms(gold: str) -> list[list[str]]:
    forms = [normalised_words(gold)]
    if both := _ACRONYM.match(gold.strip()):
        name, short = normalised_words(both.group(1)), normalised_words(both.group(2))
        if "".join(word[0] for word in name) == "".join(short):
            forms += [name, short]
    if forms[0] in (["1"], ["one"]):  # "one" is as often a pronoun: normalise leaves it
        return [["1"], ["one"]]
    return forms


def _commits(said: str, form: Sequence[str]) -> bool:
    places = [match.span() for match in affirmed_matches(said, form)]
    if not places:
        return False
    if any(re.match(r" (?:, )?or(?!\S)", said[end:]) or said[:start].endswith(" or ") for start, end in places):
        return False
    if _NUMBER.fullmatch(form[0]):
        unit = form[1:]
        others = {word for word in said.split() if _NUMBER.fullmatch(word)} - {form[0]}
        return not any(any(affirmed_matches(said, [other, *unit])) for other in others)
    for pair in _OPPOSITES:
        if len(form) == 1 and form[0] in pair:
            first, [other] = said.split()[0], pair - {form[0]}
            return first == form[0] if first in _OPPOSITES[0] else not any(affirmed_matches(said, [other]))
    return True
