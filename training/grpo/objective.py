"""The GRPO objective: rewards to advantages, log-probabilities to a loss. Numbers and tensors alone, no trainer.

Paper: sections 3.1.2 and 3.2, Table 4. Where it is silent (the order of bias and scale, what the cap does, how tokens
are averaged) this follows AReaL, the trainer that it names; each such place says so.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

FLAT = 1e-9
"""Rewards of a group that differ by no more than this are the same: rounding must not become an advantage."""


class ObjectiveConfig(BaseModel):
    """What is maximised. Numbers are Table 4's, or those of its trainer, unless a line says otherwise."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)

    clip: float = Field(default=0.2, gt=0, lt=1)
    """The policy's ratio counts between 1 - clip and 1 + clip."""
    clip_high: float | None = Field(default=None, gt=0)
    """Another upper bound, 1 + clip_high; by default that of `clip`."""
    kl: float = Field(default=0.01, ge=0)
    """The weight of the divergence from the reference model, a term of the loss; 0 needs no reference."""
    reward_scale: float = Field(default=10.0, gt=0)
    """Rewards are multiplied by this after `reward_bias`. Of account where `normalise` is `group_mean`: dividing by
    the spread undoes it, but for `epsilon`."""
    reward_bias: float = -0.2
    """Added to each reward. Taking the group's mean away undoes it, so it moves no advantage."""
    normalise: Literal["group", "group_mean"] = "group"
    """Rewards less their group's mean, divided by its standard deviation or not."""
    batch_normalise: bool = False
    """Whether advantages are also brought to mean 0 and deviation 1 over the batch, each rollout counted as often as
    it has learned tokens. The paper names group normalisation alone."""
    epsilon: float = Field(default=1e-5, gt=0)
    """Added to a standard deviation before dividing by it."""
    drop_flat_groups: bool = False
    """Whether a group whose rewards are all the same is left out. Else its tokens, of advantage 0 before
    `batch_normalise`, count in the mean and are held to the reference."""
    decoupled: bool = True
    """Whether clipping is around the policy at the step's start (proximal), with a weight for the one that sampled
    (behaviour); else around the latter."""
    behaviour_cap: float = Field(default=5.0, gt=1)
    """A token with a greater behaviour weight loses its advantage. Of account where `decoupled` is on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advantages:
    """The advantages of a batch of groups."""

    values: dict[int, tuple[float, ...]]
    """One a rollout, by the group's number, for the groups that are learned from."""
    flat: tuple[int, ...]
    """Numbers of the groups whose rewards were all the same: in `values` only if they are kept."""


def advantages(
    rewards: Sequence[Sequence[float]],
    config: ObjectiveConfig,
    *,
    tokens: Sequence[Sequence[int]] | None = None,
) -> Advantages:
    """How much better each rollout did than its group. All of an episode's tokens, its sub-agents' too, carry it.

    (reward + bias) * scale, less the group's mean, divided by the group's sample standard deviation + epsilon: the
    order and the n - 1 are AReaL's.

    >>> advantages([[1, 1, 0, 0], [1, 1, 1]], ObjectiveConfig(normalise="group_mean"))
    Advantages(values={0: (5.0, 5.0, -5.0, -5.0), 1: (0.0, 0.0, 0.0)}, flat=(1,))

    Args:
        rewards: groups of rollouts. They may differ in size; a group of fewer than two is flat.
        tokens: learned tokens of each rollout, of all processes; for `batch_normalise`.

    Raises:
        ValueError: a reward is not a finite number, or `tokens` is missing or does not match.
    """
    values, flat = {}, []
    for number, group in enumerate(rewards):
        if not all(map(math.isfinite, group)):
            raise ValueError(f"rewards of group {number}: must be finite numbers, not {list(group)}")
        scaled = (np.asarray(group, dtype=np.float64) + config.reward_bias) * config.reward_scale
        if len(group) < 2 or max(group) - min(group) <= FLAT:
            flat.append(number)
            if not config.drop_flat_groups:
                values[number] = np.zeros(len(group))
            continue
        values[number] = scaled - scaled.mean()
        if config.normalise == "group":
            values[number] /= scaled.std(ddof=1) + config.epsilon
    if config.batch_normalise and values:
        if tokens is None or [len(group) for group in tokens] != [len(group) for group in rewards]:
            raise ValueError("batch_normalise needs the learned tokens of each rollout, as many as there are rewards")
        counts = np.concatenate([tokens[number] for number in values])
        every, total = np.concatenate(list(values.values())), counts.sum()
        mean = (counts * every).sum() / max(1, total)
        deviation = math.sqrt((counts * (every - mean) ** 2).sum() / max(1, total - 1))
        values = {number: (value - mean) / (deviation + config.epsilon) for number, value in values.items()}
    return Advantages(values={number: tuple(value.tolist()) for number, value in values.items()}, flat=tuple(flat))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Sums over learned tokens, so that rows and processes can be added up; `means` has the figures of a step."""

    tokens: float = 0.0
    """Learned tokens: what a loss is divided by."""
    surrogate: float = 0.0
    """The clipped, weighted objective, without the divergence."""
    kl: float = 0.0
    """The divergence from the reference (k3); 0 where there is none."""
    ratio: float = 0.0
    """The policy's ratio to the one that clipping is around."""
    clipped: float = 0.0
    """Tokens at which clipping took the gradient away."""
    weight: float = 0.0
    """The behaviour weight, 0 above the cap."""
    capped: float = 0.0
    """Tokens above the cap."""
    drift: float = 0.0
    """|logprob - behaviour logprob|: how far learning and sampling are apart."""
    drift_most: float = 0.0
    """The largest of these; no sum."""

    def __add__(self, other: "Tally") -> "Tally":
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMS}
        return Tally(**sums, drift_most=max(self.drift_most, other.drift_most))

    def over(self, sums: Callable[..., list[float]], most: Callable[[float], float]) -> "Tally":
        """The tally of all processes.

        Args:
            sums: each of its arguments, summed over the processes.
            most: the largest of the processes' arguments.
        """
        summed = sums(*(getattr(self, name) for name in _SUMS))
        return Tally(**dict(zip(_SUMS, summed, strict=True)), drift_most=most(self.drift_most))

    def means(self) -> dict[str, float]:
        """Each sum a token, and the largest drift."""
        each = {name: getattr(self, name) / max(1.0, self.tokens) for name in _SUMS if name != "tokens"}
        return each | {"drift_most": self.drift_most}


_SUMS = tuple(field.name for field in fields(Tally) if field.name != "drift_most")


def token_loss(
    logprobs: Tensor,
    *,
    behaviour: Tensor,
    advantages: Tensor,
    mask: Tensor,
    config: ObjectiveConfig,
    proximal: Tensor | None = None,
    reference: Tensor | None = None,
) -> tuple[Tensor, Tally]:
    """The loss of sampled tokens, summed; its mean over all learned tokens of the batch is what is minimised.

    For one token, with ratio r = exp(logprob - proximal), behaviour weight w = exp(proximal - behaviour), advantage A
    and d = reference - logprob::

        -w * min(r * A, clamp(r, 1 - clip, 1 + clip) * A) + kl * (exp(d) - d - 1)

    Without `decoupled`, r = exp(logprob - behaviour) and w = 1. As in AReaL, w above `behaviour_cap` becomes 0 and
    the token still counts in the mean; every token of the batch weighs the same, however long its rollout. The
    divergence (k3) is a term of the loss and not weighted.

    A row's sum is to be divided by the tokens of the whole batch, those of the other rows and processes included
    (`paravt_training.sft.Trainer.learn` does the same): splitting the batch changes nothing.

    All log-probabilities are of one distribution, that of the sampling temperature. Tensors have one shape; what they
    hold where `mask` is False is never used.

    Args:
        logprobs: of the policy that learns, with gradient.  # [tokens]
        behaviour: of the policy that sampled, as the rollout recorded them.  # [tokens]
        advantages: each token's episode's.  # [tokens]
        mask: whether a token is learned: generated, not fed; sub-agents' or not.  # [tokens], bool
        proximal: of the policy as it was when the step began. None where the batch gets a single update: these are
            then `logprobs` themselves. Not looked at without `decoupled`.  # [tokens]
        reference: of the reference model.  # [tokens]

    Returns:
        A scalar with gradient, and what was measured.  # []

    Raises:
        ValueError: `kl` is above 0 and there is no reference.
    """
    if config.kl and reference is None:
        raise ValueError(f"kl is {config.kl}: it needs the reference model's log-probabilities, or kl=0")
    mask = mask.bool()  # integers would be taken for places
    # Only what is learned goes on: a fed token's -inf or NaN would make every gradient NaN, even times 0.
    logprobs, behaviour, advantages = logprobs[mask], behaviour[mask], advantages[mask]
    now = logprobs.detach()
    if config.decoupled:
        centre = now if proximal is None else proximal[mask]
        weight = (centre - behaviour).exp()
    else:
        centre, weight = behaviour, torch.ones_like(now)
    capped = weight > config.behaviour_cap
    weight = weight.masked_fill(capped, 0)
    ratio = (logprobs - centre).exp()
    high = config.clip if config.clip_high is None else config.clip_high
    free, held = ratio * advantages, ratio.clamp(1 - config.clip, 1 + high) * advantages
    surrogate = weight * torch.minimum(free, held)
    kl = torch.zeros_like(now)
    if reference is not None:
        away = reference[mask] - logprobs
        kl = torch.expm1(away) - away  # exp(away) - 1 would lose all digits where the two are close
    with torch.no_grad():
        drift = (now - behaviour).abs()
        sums = [surrogate, kl, ratio, held < free, weight, capped, drift]
        measured = torch.stack([one.sum().double() for one in sums]).tolist()
        most = float(drift.max()) if drift.numel() else 0.0
    tally = Tally(**dict(zip(_SUMS, [now.numel(), *measured], strict=True)), drift_most=most)
    return (config.kl * kl - surrogate).sum(), tally
