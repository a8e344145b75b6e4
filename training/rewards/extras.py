"""What the paper tried and left out (Table 4 and appendix H): factors, bonuses and a mask, all off by default."""

import re
from collections.abc import Sequence
from statistics import fmean

from paravt_infer.chat import ChatTemplate
from paravt_infer.rollout import Rollout
from paravt_training.rewards.accuracy import GoldAnswer
from paravt_training.rewards.config import Necessity, TaskAware
from paravt_training.rewards.form import TAGS

_STRUCTURE = re.compile(rf"</?(?:{'|'.join(TAGS)})>")


def task_weight(rollout: Rollout, gold: GoldAnswer, config: TaskAware) -> float:
    """The factor on R_acc: for a choice, whether its answer is concise; 1 for any other kind (appendix H.1)."""
    if gold.kind != "choice":
        return 1.0
    room = 1 + max((len(text.split()) for text in gold.options.values()), default=0)
    return config.concise if len((rollout.answer_text or "").split()) <= room else config.verbose


def necessity_bonus(rollout: Rollout, config: Necessity, *, right: bool) -> float:
    """The bonus for a right answer after a call that ran, where the overview's budget was small."""
    needed = rollout.settings.frames <= config.frames
    return config.bonus * (right and needed and bool(rollout.supporting_evidence))


def contrasts(accuracies: Sequence[float], called: Sequence[bool]) -> list[float]:
    """For each rollout of a group, by how much its way (with calls that ran, or without) was the more accurate one.

    The paper gives no formula; this is our own. 0 for all where the whole group went one way.

    >>> contrasts([1, 1, 0, 1], [True, True, False, False])
    [0.5, 0.5, -0.5, -0.5]
    """
    ways = {
        way: [accuracy for accuracy, ran in zip(accuracies, called, strict=True) if ran is way] for way in (True, False)
    }
    if not (ways[True] and ways[False]):
        return [0.0] * len(called)
    gain = fmean(ways[True]) - fmean(ways[False])
    return [gain if ran else -gain for ran in called]


def structural_mask(output_ids: Sequence[int], chat: ChatTemplate) -> list[bool]:
    """Which generated tokens hold any character of a tag: those that TD-GRPO leaves out (appendix H.3).

    Tags are one token each or several, as the tokenizer has them. Each token is decoded alone: tags are ASCII, which
    byte-level tokens keep.  # [output] to the same
    """
    pieces = [chat.decode([token]) for token in output_ids]
    inside = [(tag.start(), tag.end()) for tag in _STRUCTURE.finditer("".join(pieces))]
    mask, at = [], 0
    for piece in pieces:
        end = at + len(piece)
        mask.append(any(start < end and at < stop for start, stop in inside))
        at = end
    return mask
