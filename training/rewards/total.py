"""The total reward, R = R_acc + lambda_fmt R_fmt + R_tool (section 3.2.3), with its parts for logging."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paravt_infer.rollout import Rollout
from paravt_training.rewards.ablations import group_contrast, necessity_bonus, task_weight
from paravt_training.rewards.accuracy import GoldAnswer, accuracy_reward
from paravt_training.rewards.config import RewardConfig
from paravt_training.rewards.format import anchor_reward, base_reward, format_reward, is_degenerate
from paravt_training.rewards.tool import tool_reward


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """The reward of a rollout."""

    total: float
    """Before the objective's scale and bias."""
    parts: dict[str, float]
    """`accuracy`, `base`, `anchor`, `format` and `tool`, before their weights and present even where a switch excludes
    them from the total; `degenerate`; and, where they are on, `judge_failed`, `staged`, `task_weight`, `necessity` and
    `contrast`."""


def compute_reward(
    rollout: Rollout, gold: GoldAnswer, config: RewardConfig, *, step: int = 0, judged: float | None = None
) -> Reward:
    """The reward of one rollout: a pure function of its record.

    Args:
        step: of the training run, for phase staging.
        judged: the value of `RewardJudge.grade`, where `accuracy` is judge. None for an open answer means that the
            judge failed: the rule grades it, and the part `judge_failed` is 1.

    Raises:
        ValueError: the episode failed or has not finished. A failure is never scored as an answer.

    >>> from paravt_infer import Question
    >>> from paravt_infer.rollout import Turn
    >>> text = "the red one moves first</think><answer>B</answer>"
    >>> direct = Rollout(
    ...     question=Question(video="v", text="?", options=["red", "blue"]), status="answered", answer_text="B",
    ...     turns=[Turn(prefix="<think>", text=text)],
    ... )
    >>> compute_reward(direct, GoldAnswer(answer="B", kind="choice"), RewardConfig()).total
    2.0
    """
    if rollout.status not in ("answered", "no_answer"):
        raise ValueError(f"rollout {rollout.id} ({rollout.status}) has no reward; remove it from its group")
    if is_degenerate(rollout):
        return Reward(
            total=0.0, parts=dict.fromkeys(("accuracy", "base", "anchor", "format", "tool"), 0.0) | {"degenerate": 1.0}
        )
    parts = {"degenerate": 0.0}
    by_judge = config.accuracy == "judge" and gold.kind == "open"
    accuracy = judged if by_judge and judged is not None else accuracy_reward(rollout.answer_text, gold)
    if by_judge:
        parts["judge_failed"] = float(judged is None)
    parts |= {
        "accuracy": accuracy,
        "base": base_reward(rollout, config),
        "anchor": anchor_reward(rollout, config),
        "format": format_reward(rollout, config),
        "tool": tool_reward(rollout, accuracy, right_above=config.right_above),
    }
    total = accuracy
    if config.task_aware is not None:
        parts["task_weight"] = task_weight(rollout, gold, config.task_aware)
        total *= parts["task_weight"]
    if config.tool:
        total += parts["tool"]
    if config.necessity is not None:
        parts["necessity"] = necessity_bonus(rollout, config.necessity, right=accuracy > config.right_above)
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
    """The rewards of a group, in order: each rollout's own, plus the contrast between them where that is on.

    Args:
        rollouts: without the failed ones.
        judged: one per rollout, as for `compute_reward`.
    """
    verdicts = [None] * len(rollouts) if judged is None else judged
    rewards = [
        compute_reward(rollout, gold, config, step=step, judged=verdict)
        for rollout, verdict in zip(rollouts, verdicts, strict=True)
    ]
    if not config.contrastive or step < config.format_steps:
        return rewards
    contrasts = group_contrast(
        [r.parts["accuracy"] for r in rewards], [bool(rollout.supporting_evidence) for rollout in rollouts]
    )
    return [
        r
        if r.parts["degenerate"]
        else replace(r, total=r.total + config.contrastive * contrast, parts=r.parts | {"contrast": contrast})
        for r, contrast in zip(rewards, contrasts, strict=True)
    ]
