"""What a step of reinforcement learning measured of its rollouts: the names and meanings of its metrics."""

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
YARDSTICK = RewardConfig()
"""Form is measured alike in all runs, by the full recipe's R_fmt, whatever a run's own reward leaves out."""


def batch_values(groups: Sequence[RolloutGroup], gains: Advantages, *, version: int) -> dict[str, Any]:
    """Metrics of a step's rollouts, means over them where no other meaning is given.

    `f_tau` is the mean format reward at the sampling temperature, by `YARDSTICK`, and `kappa` the tool calls a rollout,
    as in the paper's Table 2; `reward/format` is what the run itself paid. `closure/TAG` is the part closed of the tags
    opened (Table 5); `staleness` counts versions.

    Args:
        version: of the weights that are about to learn.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [one for group in groups for one in group.rewards]
    values: dict[str, Any] = {
        "groups": len(groups),
        "groups_flat": len(gains.flat),
        "groups_dropped": len(groups) - len(gains.values),
        "rollouts": len(rollouts),
        "rollouts_failed": sum(group.failed for group in groups),
        "rollouts_retried": sum(group.retried for group in groups),
        "contexts_too_long": sum(group.too_long for group in groups),
        "frames": _mean(group.frames for group in groups),
        "version": version,
    }
    if values["rollouts_failed"]:
        values["failure"] = next(group.why for group in groups if group.why)
    ages = [version - int(v) for rollout in rollouts for v in _versions(rollout)]
    values |= {"staleness/mean": _mean(ages), "staleness/most": max(ages, default=0)}
    values |= {f"reward/{part}": _mean(one.parts.get(part, 0.0) for one in rewards) for part in _parts(rewards)}
    values["reward/total"] = _mean(one.total for one in rewards)
    return values | episode_values(rollouts)


def episode_values(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """Metrics of rollouts alone: form, tool use, length."""
    opened: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    for rollout in rollouts:
        for tag, (begun, ended) in tag_closure(rollout).items():
            opened[tag] += begun
            closed[tag] += ended
    calls = [call for rollout in rollouts for call in rollout.evidence]
    count = max(1, len(rollouts))
    values: dict[str, Any] = {
        "f_tau": _mean(map(_form, rollouts)),
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
    ran = [
        (rollout, compute_reward(rollout, prompt.gold, config, judged=None))
        for prompt, rollout in zip(prompts, rollouts, strict=True)
        if rollout.status in ("answered", "no_answer")
    ]
    chosen = [one.parts["accuracy"] for rollout, one in ran if rollout.question.options]
    values = {
        "accuracy": _mean(one.parts["accuracy"] for _, one in ran),
        "accuracy_choice": _mean(chosen),
        "format": _mean(_form(rollout) for rollout, _ in ran),
        "kappa": _mean(len(rollout.evidence) for rollout, _ in ran),
        "failed": len(rollouts) - len(ran),
    }
    return {f"held_out/{name}": value for name, value in values.items()}


def _form(rollout: Rollout) -> float:
    return 0.0 if is_degenerate(rollout) else format_reward(rollout, YARDSTICK)


def _parts(rewards: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(part for one in rewards for part in one.parts))


def _versions(rollout: Rollout) -> set[str]:
    turns = [*rollout.turns, *(call.sub_agent for call in rollout.evidence if call.sub_agent is not None)]
    return {turn.weight_version for turn in turns if turn.weight_version is not None}


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else 0.0
