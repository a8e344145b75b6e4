"""Variants that the paper tried and rejected (Table 4 and appendix H): factors, bonuses, a mask; off by default."""

import re
from collections.abc import Sequence
from statistics import fmean

from paravt_infer.chat import ChatTemplate
from paravt_infer.rollout import Rollout
from paravt_training.rewards.accuracy import GoldAnswer
from paravt_training.rewards.config import NecessityConfig, TaskAwareConfig
from paravt_training.rewards.format import TAGS

_TAG = re.compile(rf"</?(?:{'|'.join(TAGS)})>")


def task_weight(rollout: Rollout, gold: GoldAnswer, config: TaskAwareConfig) -> float:
    """The factor on R_acc: of a choice, by whether the answer is concise; 1 for other kinds (appendix H.1)."""
    if gold.kind != "choice":
        return 1.0
    limit = 1 + max((len(text.split()) for text in gold.options.values()), default=0)
    return config.concise if len((rollout.answer_text or "").split()) <= limit else config.verbose


def necessity_bonus(rollout: Rollout, config: NecessityConfig, *, right: bool) -> float:
    """The bonus for a right answer after a call that ran, where the overview had few frames."""
    needed = rollout.settings.frames <= config.frames
    return config.bonus * (right and needed and bool(rollout.supporting_evidence))


def group_contrast(accuracies: Sequence[float], called: Sequence[bool]) -> list[float]:
    """For each rollout of a group, how much more accurate its kind (with or without calls that ran) was on average.

    The paper gives no formula; this one is ours. 0 for all where the whole group is of one kind.

    >>> group_contrast([1, 1, 0, 1], [True, True, False, False])
    [0.5, 0.5, -0.5, -0.5]
    """
    with_calls = [accuracy for accuracy, ran in zip(accuracies, called, strict=True) if ran]
    without = [accuracy for accuracy, ran in zip(accuracies, called, strict=True) if not ran]
    if not (with_calls and without):
        return [0.0] * len(called)
    gain = fmean(with_calls) - fmean(without)
    return [gain if ran else -gain for ran in called]


def tag_token_mask(output_ids: Sequence[int], chat: ChatTemplate) -> list[bool]:
    """Which generated tokens contain any character of a tag: those that TD-GRPO excludes (appendix H.3).

    A tag may be one token or several. Each token is decoded alone, which is safe as tags are ASCII and byte-level
    tokens keep that.  # [output] to the same
    """
    pieces = [chat.decode([token]) for token in output_ids]
    tags = [(tag.start(), tag.end()) for tag in _TAG.finditer("".join(pieces))]
    mask, position = [], 0
    for piece in pieces:
        end = position + len(piece)
        mask.append(any(start < end and position < stop for start, stop in tags))
        position = end
    return mask
