"""The sum: R = R_acc + lambda_fmt R_fmt + R_tool (section 3.2.3), with its parts for logging."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paravt_infer.rollout import Rollout
from paravt_training.rewards.accuracy import GoldAnswer, accuracy
from paravt_training.rewards.config import RewardConfig
from paravt_training.rewards.extras import contrasts, necessity_bonus, task_weight
from paravt_training.rewards.form import anchor_reward, base_reward, format_reward, is_degenerate
from paravt_training.rewards.tool import tool_reward


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """What a rollout is worth."""

    total: float
    """Before the objective's scale and bias."""
    parts: dict[str, float]
    """`accuracy`, `base`, `anchor`, `format` and `tool`, before their weights and there even where a switch keeps them
    out of the total; `degenerate`; and where they are on `judge_failed`, `staged`, `task_weight`, `necessity` and
    `contrast`."""


def reward(
    rollout: Rollout, gold: GoldAnswer, config: RewardConfig, *, step: int = 0, judged: float | None = None
) -> Reward:
    """The reward of one rollout: a pure function of its record.

    Args:
        step: of the training run, for phase staging.
        judged: what `Judge.grade` returned, where `accuracy` is judge. None for an open answer means that the judge
            failed: the rule grades it, and the part `judge_failed` is 1.

    Raises:
        ValueError: the episode failed or is under way. A failure is never scored as an answer.

    >>> from paravt_infer import Question
    >>> from paravt_infer.rollout import Turn
    >>> said = "the red one moves first</think><answer>B</answer>"
    >>> direct = Rollout(
    ...     question=Question(video="v", text="?", options=["red", "blue"]), status="answered", answer_text="B",
    ...     turns=[Turn(prefix="<think>", text=said)],
    ... )
    >>> reward(direct, GoldAnswer(answer="B", kind="choice"), RewardConfig()).total
    2.0
    """
    if rollout.status not in ("answered", "no_answer"):
        raise ValueError(f"rollout {rollout.id} ({rollout.status}) has no reward; leave it out of its group")
    if is_degenerate(rollout):
        return Reward(
            total=0.0, parts=dict.fromkeys(("accuracy", "base", "anchor", "format", "tool"), 0.0) | {"degenerate": 1.0}
        )
    parts = {"degenerate": 0.0}
    by_judge = config.accuracy == "judge" and gold.kind == "open"
    right = judged if by_judge and judged is not None else accuracy(rollout.answer_text, gold)
    if by_judge:
        parts["judge_failed"] = float(judged is None)
    parts |= {
        "accuracy": right,
        "base": base_reward(rollout, config),
        "anchor": anchor_reward(rollout, config),
        "format": format_reward(rollout, config),
        "tool": tool_reward(rollout, right, right_above=config.right_above),
    }
    total = right
    if config.task_aware is not None:
        parts["task_weight"] = task_weight(rollout, gold, config.task_aware)
        total *= parts["task_weight"]
    if config.tool:
        total += parts["tool"]
    if config.necessity is not None:
        parts["necessity"] = necessity_bonus(rollout, config.necessity, right=right > config.right_above)
        total += parts["necessity"]
    if config.format_steps:
        parts["staged"] = float(step < config.format_steps)
        total *= 1 - parts["staged"]
    return Reward(total=total + config.lambda_fmt * parts["format"], parts=parts)


def group_rewards(
    rollouts: Sequence[Rollout],
    gold: GoldAnswer,
    config: RewardConfig,
    *,
    step: int = 0,
    judged: Sequence[float | None] | None = None,
) -> list[Reward]:
    """The rewards of a group, in its order: each rollout's own, and the contrast between them where that is on.

    Args:
        rollouts: without those that failed.
        judged: one a rollout, as for `reward`.
    """
    verdicts = [None] * len(rollouts) if judged is None else judged
    own = [
        reward(rollout, gold, config, step=step, judged=verdict)
        for rollout, verdict in zip(rollouts, verdicts, strict=True)
    ]
    if not config.contrastive or step < config.format_steps:
        return own
    gains = contrasts(
        [one.parts["accuracy"] for one in own], [bool(rollout.supporting_evidence) for rollout in rollouts]
    )
    return [
        one
        if one.parts["degenerate"]
        else replace(one, total=one.total + config.contrastive * gain, parts=one.parts | {"contrast": gain})
        for one, gain in zip(own, gains, strict=True)
    ]
