"""The metrics of the rollouts of a reinforcement learning step."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from paravt_infer.rollout import Rollout
from paravt_training.grpo.objective import Advantages
from paravt_training.grpo.prompts import Prompt
from paravt_training.grpo.rollouts import RolloutGroup
from paravt_training.rewards.config import RewardConfig
from paravt_training.rewards.format import format_reward, is_degenerate, tag_closure
from paravt_training.rewards.total import compute_reward

TAGS = ("think", "answer", "tool_call")
FULL_FORMAT = RewardConfig()
"""`f_tau` is the R_fmt of the full recipe in all runs, whatever a run's own reward leaves out."""


def batch_values(groups: Sequence[RolloutGroup], group_advantages: Advantages, *, version: int) -> dict[str, Any]:
    """Metrics of a step's rollouts, means over them unless stated otherwise.

    `f_tau` is the mean format reward at the sampling temperature, by `FULL_FORMAT`, and `kappa` the number of tool
    calls per rollout, as in the paper's Table 2; `reward/format` is the run's own format reward. `closure/TAG` is the
    share of opened tags that were closed (Table 5); `staleness` is in versions.

    Args:
        version: of the weights that learn from them.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [reward for group in groups for reward in group.rewards]
    values: dict[str, Any] = {
        "groups": len(groups),
        "groups_flat": len(group_advantages.flat),
        "groups_dropped": len(groups) - len(group_advantages.values),
        "rollouts": len(rollouts),
        "rollouts_failed": sum(group.failed for group in groups),
        "rollouts_retried": sum(group.retried for group in groups),
        "contexts_too_long": sum(group.too_long for group in groups),
        "frames": _mean(group.frames for group in groups),
        "version": version,
    }
    if values["rollouts_failed"]:
        values["failure"] = next(group.failure for group in groups if group.failure)
    ages = [version - int(v) for rollout in rollouts for v in _versions(rollout)]
    parts = dict.fromkeys(part for reward in rewards for part in reward.parts)
    values |= {"staleness/mean": _mean(ages), "staleness/most": max(ages, default=0)}
    values |= {f"reward/{part}": _mean(reward.parts.get(part, 0.0) for reward in rewards) for part in parts}
    values["reward/total"] = _mean(reward.total for reward in rewards)
    return values | episode_values(rollouts)


def episode_values(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """Metrics that need only the rollouts: format, tool use, length."""
    opened: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    for rollout in rollouts:
        for tag, (opening, closing) in tag_closure(rollout).items():
            opened[tag] += opening
            closed[tag] += closing
    calls = [call for rollout in rollouts for call in rollout.evidence]
    count = max(1, len(rollouts))
    values: dict[str, Any] = {
        "f_tau": _mean(map(_format_reward, rollouts)),
        "kappa": len(calls) / count,
        "calls_ok": sum(call.status == "ok" for call in calls) / count,
        "with_calls": _mean(bool(rollout.evidence) for rollout in rollouts),
        "response_tokens": _mean(sum(len(turn.output_ids) for turn in rollout.turns) for rollout in rollouts),
        "no_answer": _mean(rollout.answer is None for rollout in rollouts),
    }
    if calls:
        values["tool_code"] = _mean(call.syntax == "tool_code" for call in calls)
    for tag in TAGS:
        values[f"opened/{tag}"] = opened[tag] / count
        if opened[tag]:
            values[f"closure/{tag}"] = closed[tag] / opened[tag]
    return values


def held_out_values(prompts: Sequence[Prompt], rollouts: Sequence[Rollout], config: RewardConfig) -> dict[str, Any]:
    """Metrics of greedy episodes on held-out questions; failed ones are counted and left out."""
    scored = [
        (rollout, compute_reward(rollout, prompt.gold, config, judged=None))
        for prompt, rollout in zip(prompts, rollouts, strict=True)
        if rollout.status in ("answered", "no_answer")
    ]
    values = {
        "accuracy": _mean(reward.parts["accuracy"] for _, reward in scored),
        "accuracy_choice": _mean(reward.parts["accuracy"] for rollout, reward in scored if rollout.question.options),
        "format": _mean(_format_reward(rollout) for rollout, _ in scored),
        "kappa": _mean(len(rollout.evidence) for rollout, _ in scored),
        "failed": len(rollouts) - len(scored),
    }
    return {f"held_out/{name}": value for name, value in values.items()}


def _format_reward(rollout: Rollout) -> float:
    return 0.0 if is_degenerate(rollout) else format_reward(rollout, FULL_FORMAT)


def _versions(rollout: Rollout) -> set[str]:
    turns = [*rollout.turns, *(call.sub_agent for call in rollout.evidence if call.sub_agent is not None)]
    return {turn.weight_version for turn in turns if turn.weight_version is not None}


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else 0.0
