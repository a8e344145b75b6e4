"""How right an answer is, between 0 and 1, by the kind of question (R_acc: paper, "Reward Function Details").

Choices are right or wrong, open answers score token F1 with SQuAD's normalisation, spans their intersection over union.
"""

import string
from collections import Counter
from collections.abc import Mapping

from paravt_infer.answers import iou, read_choice, read_span

_LETTERS = dict.fromkeys(string.ascii_uppercase[:10], "")


def accuracy(kind: str, said: str | None, right: str, options: Mapping[str, str] | None = None) -> float:
    """How right `said` is.

    Args:
        kind: `choice`, `open` or `grounding`.
        said: the answer's text; None where there is none.
        right: a letter (perhaps with its text), a few words, or `[start, end]` in seconds.
        options: letter to text, where they are known.

    >>> accuracy("choice", "(B) blue", "B"), accuracy("open", "a red car", "the red car"), accuracy("open", None, "x")
    (1.0, 1.0, 0.0)
    """
    if said is None:
        return 0.0
    if kind == "choice":
        letters = options or _LETTERS
        return float(read_choice(said, letters) == read_choice(right, letters) is not None)
    if kind == "grounding":
        return iou(read_span(said), read_span(right))
    return token_f1(said, right)


def token_f1(said: str, right: str) -> float:
    """F1 of the words in common, each as often as both have it; case, punctuation and articles do not count.

    >>> token_f1("He opens the red door.", "opens a door")
    0.6666666666666666
    """
    one, two = _words(said), _words(right)
    common = sum((Counter(one) & Counter(two)).values())
    return 2 * common / (len(one) + len(two)) if common else 0.0


def _words(text: str) -> list[str]:
    plain = "".join(" " if character in string.punctuation else character for character in text.lower())
    words = plain.split()
    # "A" alone is an answer, not an article.
    return [word for word in words if word not in ("a", "an", "the")] or words
