"""The GRPO objective: from rewards to advantages, from log-probabilities to a loss. Pure functions, no trainer.

Paper: sections 3.1.2 and 3.2, Table 4. Where it is silent (the order of bias and scale, what the cap does, how tokens
are averaged) this follows AReaL, the trainer that it names; comments say where.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from paravt_infer.schema import FrozenModel

FLAT = 1e-9
"""Rewards of a group that differ by no more than this are equal: rounding errors must not become advantages."""


class ObjectiveConfig(FrozenModel):
    """The objective's coefficients and switches. Defaults are Table 4's, or AReaL's, unless a field says otherwise."""

    clip: float = Field(default=0.2, gt=0, lt=1)
    """The policy ratio is clipped to between 1 - clip and 1 + clip."""
    clip_high: float | None = Field(default=None, gt=0)
    """A separate upper bound, 1 + clip_high; by default `clip`."""
    kl: float = Field(default=0.01, ge=0)
    """Weight of the KL divergence from the reference model, a term of the loss; 0 needs no reference model."""
    reward_scale: float = Field(default=10.0, gt=0)
    """Rewards are multiplied by this after `reward_bias`. Only has an effect if `normalise` is `group_mean`: dividing
    by the standard deviation cancels it, except for `epsilon`."""
    reward_bias: float = -0.2
    """Added to each reward. Subtracting the group's mean cancels it, so it changes no advantage."""
    normalise: Literal["group", "group_mean"] = "group"
    """Subtract the group's mean from rewards, and divide by its standard deviation (`group`) or not (`group_mean`)."""
    batch_normalise: bool = False
    """Also normalise advantages to mean 0 and standard deviation 1 over the learned tokens of the batch. The paper has
    group normalisation only."""
    epsilon: float = Field(default=1e-5, gt=0)
    """Added to a standard deviation before dividing by it."""
    drop_flat_groups: bool = False
    """Leave out groups whose rewards are all equal. Otherwise their tokens, with advantage 0 before `batch_normalise`,
    count in the mean and have a KL term."""
    decoupled: bool = True
    """Clip around the policy at the step's start (proximal) and weight by it over the policy that sampled (behaviour);
    otherwise clip around the behaviour policy."""
    behaviour_cap: float = Field(default=5.0, gt=1)
    """A token with a greater behaviour weight gets no gradient from its advantage. Ignored without `decoupled`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advantages:
    """The advantages of a batch of groups."""

    values: dict[int, tuple[float, ...]]
    """One per rollout, by the group's index, for the groups that are learned from."""
    flat: tuple[int, ...]
    """Indices of the groups whose rewards are all equal; in `values` only if they are kept."""


def advantages(
    rewards: Sequence[Sequence[float]],
    config: ObjectiveConfig,
    *,
    tokens: Sequence[Sequence[int]] | None = None,
) -> Advantages:
    """Each rollout's advantage over its group, shared by all tokens of the episode, including its sub-agents'.

    (reward + bias) * scale, minus the group's mean, divided by the group's sample standard deviation + epsilon. The
    order and the n - 1 are AReaL's.

    >>> advantages([[1, 1, 0, 0], [1, 1, 1]], ObjectiveConfig(normalise="group_mean"))
    Advantages(values={0: (5.0, 5.0, -5.0, -5.0), 1: (0.0, 0.0, 0.0)}, flat=(1,))

    Args:
        rewards: per group, one per rollout. Groups may differ in size; one of fewer than two rollouts is flat.
        tokens: learned tokens of each rollout, for `batch_normalise`.

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


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over learned tokens, to be added over rows and processes; `means` divides them by the tokens."""

    tokens: float = 0.0
    """Learned tokens."""
    surrogate: float = 0.0
    """The clipped, weighted objective without the KL term."""
    kl: float = 0.0
    """The KL divergence from the reference (k3 estimator); 0 without a reference."""
    ratio: float = 0.0
    """The ratio of the policy to the one that clipping is centred on."""
    clipped: float = 0.0
    """Tokens whose gradient was clipped away."""
    weight: float = 0.0
    """The behaviour weight, 0 above the cap."""
    capped: float = 0.0
    """Tokens above the cap."""
    drift: float = 0.0
    """|logprob - behaviour logprob|: how much learner and sampler disagree."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def all_reduce(self, sum_: Callable[..., list[float]]) -> "Tally":
        """The tally over all processes; `sum_` returns each of its arguments summed over them."""
        return Tally(*sum_(*astuple(self)))

    def means(self) -> dict[str, float]:
        """Each sum per token, except `tokens`."""
        return {name: value / max(1.0, self.tokens) for name, value in asdict(self).items() if name != "tokens"}


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
    """The summed loss of sampled tokens; training minimises its mean over all learned tokens of the batch.

    For one token, with ratio r = exp(logprob - proximal), behaviour weight w = exp(proximal - behaviour), advantage A
    and d = reference - logprob::

        -w * min(r * A, clamp(r, 1 - clip, 1 + clip) * A) + kl * (exp(d) - d - 1)

    Without `decoupled`, r = exp(logprob - behaviour) and w = 1. As in AReaL, w above `behaviour_cap` becomes 0 and
    the token still counts in the mean, and every token of the batch has the same weight, however long its rollout. The
    KL divergence (k3 estimator) is an unweighted term of the loss.

    Divide a row's sum by the tokens of the whole batch, including those of other rows and processes, as
    `GrpoTrainer.learn` does: then splitting the batch changes nothing.

    All log-probabilities are at the sampling temperature. Tensors have one shape; their values where `mask` is False
    are never used.

    Args:
        logprobs: of the policy being trained, with gradient.  # [tokens]
        behaviour: of the policy that sampled, as recorded in the rollout.  # [tokens]
        advantages: of each token's episode.  # [tokens]
        mask: whether a token is learned, i.e. was generated.  # [tokens], bool
        proximal: of the policy at the start of the step. None if the batch gets a single update, where it equals
            `logprobs`. Ignored without `decoupled`.  # [tokens]
        reference: of the reference model.  # [tokens]

    Returns:
        A scalar with gradient, and the tally.  # []

    Raises:
        ValueError: `kl` is above 0 but there is no reference.
    """
    if config.kl and reference is None:
        raise ValueError(f"kl is {config.kl}: it needs the reference model's log-probabilities, or kl=0")
    mask = mask.bool()  # integers would be used as indices
    # Select first: the -inf or NaN of a token that is not learned would make every gradient NaN, even times 0.
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
    unclipped, clipped = ratio * advantages, ratio.clamp(1 - config.clip, 1 + high) * advantages
    surrogate = weight * torch.minimum(unclipped, clipped)
    kl = torch.zeros_like(now)
    if reference is not None:
        log_ratio = reference[mask] - logprobs
        kl = torch.expm1(log_ratio) - log_ratio  # exp() - 1 would lose all digits where the two are close
    with torch.no_grad():
        sums = [surrogate, kl, ratio, clipped < unclipped, weight, capped, (now - behaviour).abs()]
        measured = torch.stack([values.sum().double() for values in sums]).tolist()
    return (config.kl * kl - surrogate).sum(), Tally(now.numel(), *measured)
