"""The GRPO objective: the formulae of its docstrings, written again in plain numpy, and what must hold of them."""

import math
from collections import defaultdict
from dataclasses import astuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from paravt_training.grpo.objective import ObjectiveConfig, Tally, advantages, token_loss

PARTS = ("logprobs", "behaviour", "advantages", "mask", "proximal", "reference")


def batch(seed: int, tokens: int = 40, spread: float = 0.5) -> dict[str, Tensor]:
    """Log-probabilities of policies that differ, in float64; some tokens are not learned."""
    numbers = np.random.default_rng(seed)
    logprobs = -numbers.exponential(1.0, tokens)
    made = {name: logprobs + numbers.normal(0, spread, tokens) for name in ("behaviour", "proximal", "reference")}
    made |= {"logprobs": logprobs, "advantages": numbers.normal(0, 1, tokens), "mask": numbers.random(tokens) < 0.7}
    return {name: torch.tensor(made[name]) for name in PARTS}


def graded(config: ObjectiveConfig, **parts: Any) -> tuple[float, Tally, Tensor]:
    """The loss, the tally and the gradient of the log-probabilities."""
    logprobs = parts.pop("logprobs").clone().requires_grad_()
    loss, tally = token_loss(logprobs, **parts, config=config)
    loss.backward()
    return float(loss.detach()), tally, logprobs.grad


def one(config: ObjectiveConfig, **logs: float) -> tuple[float, Tally, float]:
    """A single learned token."""
    parts: dict[str, Tensor] = {name: torch.tensor([value], dtype=torch.float64) for name, value in logs.items()}
    loss, tally, gradient = graded(config, **parts, mask=torch.tensor([True]))
    return loss, tally, float(gradient[0])


# An independent reference: loops over numbers, from the formulae.


def reference_advantages(groups: list[list[float]], tokens: list[list[int]], c: ObjectiveConfig) -> dict[int, Any]:
    out = {}
    for number, group in enumerate(groups):
        scaled = [(reward + c.reward_bias) * c.reward_scale for reward in group]
        mean = sum(scaled) / len(scaled)
        if max(group) == min(group):
            if c.drop_flat_groups:
                continue
            out[number] = [0.0] * len(group)
        else:
            deviation = (sum((one - mean) ** 2 for one in scaled) / (len(scaled) - 1)) ** 0.5
            divisor = deviation + c.epsilon if c.normalise == "group" else 1.0
            out[number] = [(one - mean) / divisor for one in scaled]
    if c.batch_normalise:
        each = [
            a for number, group in out.items() for a, n in zip(group, tokens[number], strict=True) for _ in range(n)
        ]
        if each:
            mean, deviation = np.mean(each), np.std(each, ddof=1)
            out = {n: [(a - mean) / (deviation + c.epsilon) for a in group] for n, group in out.items()}
    return out


def reference_loss(parts: dict[str, Tensor], c: ObjectiveConfig) -> dict[str, float]:
    columns = [parts[name].numpy() for name in PARTS]
    sums: dict[str, float] = defaultdict(float)
    for logprob, behaviour, advantage, learned, proximal, reference in zip(*columns, strict=True):
        if not learned:
            continue
        centre = proximal if c.decoupled else behaviour
        weight = np.exp(proximal - behaviour) if c.decoupled else 1.0
        if weight > c.behaviour_cap:
            weight = 0.0
            sums["capped"] += 1
        ratio = np.exp(logprob - centre)
        bounded = min(max(ratio, 1 - c.clip), 1 + (c.clip_high or c.clip))
        surrogate = weight * min(ratio * advantage, bounded * advantage)
        kl = np.exp(reference - logprob) - (reference - logprob) - 1
        outside = (ratio > bounded and advantage > 0) or (ratio < bounded and advantage < 0)
        for name, value in {
            "loss": -surrogate + c.kl * kl, "tokens": 1, "surrogate": surrogate, "kl": kl, "ratio": ratio,
            "clipped": float(outside), "weight": weight, "drift": abs(logprob - behaviour),
        }.items():  # fmt: skip
            sums[name] += value
    return sums


CONFIGS = [
    ObjectiveConfig(),
    ObjectiveConfig(decoupled=False),
    ObjectiveConfig(clip=0.1, clip_high=0.4, kl=0.3),
    ObjectiveConfig(behaviour_cap=1.2, kl=0),
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_is_that_of_the_reference_in_numpy(seed: int, config: ObjectiveConfig) -> None:
    parts = batch(seed, spread=1.0)
    loss, tally, _ = graded(config, **parts)
    right = reference_loss(parts, config)
    assert loss == pytest.approx(right.pop("loss"), abs=1e-6)
    measured = {name: getattr(tally, name) for name in right}
    assert measured == pytest.approx(dict(right), abs=1e-6)
    assert tally.clipped > 0 and (tally.capped > 0 or not config.decoupled)


groups_of_rewards = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.75, 2.8]), min_size=2, max_size=8), min_size=1, max_size=5
)


@given(
    groups=groups_of_rewards,
    normalise=st.sampled_from(["group", "group_mean"]),
    batch_normalise=st.booleans(),
    drop=st.booleans(),
    data=st.data(),
)
def test_advantages_are_those_of_the_reference_in_numpy(
    groups: list[list[float]], normalise: Any, batch_normalise: bool, drop: bool, data: st.DataObject
) -> None:
    config = ObjectiveConfig(normalise=normalise, batch_normalise=batch_normalise, drop_flat_groups=drop)
    tokens = [[data.draw(st.integers(1, 20)) for _ in group] for group in groups]
    made = advantages(groups, config, tokens=tokens)
    right = reference_advantages(groups, tokens, config)
    assert made.flat == tuple(n for n, group in enumerate(groups) if len(set(group)) == 1)
    assert list(made.values) == list(right)
    for number, group in right.items():
        assert made.values[number] == pytest.approx(group, abs=1e-6)


# Advantages by hand.


@pytest.mark.parametrize(
    "rewards, normalise, right",
    [
        # Sample deviations: sqrt(0.5), sqrt(1/3), sqrt(7) / 8 with n - 1.
        ([1, 0], "group", (math.sqrt(0.5), -math.sqrt(0.5))),
        ([1, 1, 0, 0], "group", (math.sqrt(0.75), math.sqrt(0.75), -math.sqrt(0.75), -math.sqrt(0.75))),
        ([1] + [0] * 7, "group", (math.sqrt(8) * 7 / 8,) + (-math.sqrt(8) / 8,) * 7),
        ([1, 0], "group_mean", (5.0, -5.0)),
        ([0.5, 2.0, 2.0], "group_mean", (-10.0, 5.0, 5.0)),
    ],
)
def test_a_group_by_hand(rewards: list[float], normalise: Any, right: tuple[float, ...]) -> None:
    made = advantages([rewards], ObjectiveConfig(normalise=normalise))
    assert made.values[0] == pytest.approx(right, abs=1e-5) and made.flat == ()


@pytest.mark.parametrize("normalise", ["group", "group_mean"])
def test_the_bias_moves_no_advantage_and_the_scale_only_where_the_spread_stays(normalise: Any) -> None:
    rewards = [[0.3, 1.9, 2.8], [0, 0, 1]]
    plain, biased, scaled = (
        advantages(rewards, ObjectiveConfig(normalise=normalise, **change))
        for change in ({}, {"reward_bias": 3.0}, {"reward_scale": 20.0})
    )
    factor = 2 if normalise == "group_mean" else 1
    for number, group in plain.values.items():
        assert biased.values[number] == pytest.approx(group)
        assert scaled.values[number] == pytest.approx([factor * one for one in group], abs=1e-5)


@pytest.mark.parametrize("group", [[1, 1, 1], [0.3, 0.1 + 0.2], [2.0], []])
def test_a_group_of_one_reward_is_flat_and_dropped_or_kept_at_zero(group: list[float]) -> None:
    rewards = [[1, 0], group]
    kept = advantages(rewards, ObjectiveConfig())
    dropped = advantages(rewards, ObjectiveConfig(drop_flat_groups=True))
    assert kept.flat == dropped.flat == (1,)
    assert kept.values[1] == (0.0,) * len(group) and list(dropped.values) == [0]
    assert kept.values[0] == dropped.values[0]


def test_batch_normalisation_counts_each_rollout_as_often_as_it_has_tokens() -> None:
    config = ObjectiveConfig(normalise="group_mean", batch_normalise=True)
    # Advantages 5 and -5; the worse one has three tokens: mean -2.5, deviation sqrt((7.5² + 3 * 2.5²) / 3) = 5.
    made = advantages([[1, 0]], config, tokens=[[1, 3]])
    assert made.values[0] == pytest.approx((1.5, -0.5), abs=1e-5)


def test_a_dropped_group_is_no_part_of_the_batch_that_is_normalised() -> None:
    config = ObjectiveConfig(batch_normalise=True, drop_flat_groups=True)
    with_flat = advantages([[1, 0], [1, 1]], config, tokens=[[4, 2], [900, 900]])
    assert with_flat.values == advantages([[1, 0]], config, tokens=[[4, 2]]).values


@pytest.mark.parametrize("drop", [True, False])
def test_a_batch_of_flat_groups_gives_no_advantage_at_all(drop: bool) -> None:
    config = ObjectiveConfig(batch_normalise=True, drop_flat_groups=drop)
    made = advantages([[1, 1], [0, 0]], config, tokens=[[3, 4], [5, 6]])
    assert made.flat == (0, 1) and not any(one for group in made.values.values() for one in group)


@pytest.mark.parametrize("tokens", [None, [[1, 2]], [[1, 2], [3]]])
def test_batch_normalisation_needs_the_tokens_of_every_rollout(tokens: Any) -> None:
    with pytest.raises(ValueError, match="needs the learned tokens of each rollout"):
        advantages([[1, 0], [0, 1]], ObjectiveConfig(batch_normalise=True), tokens=tokens)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused_by_its_group(wrong: float) -> None:
    with pytest.raises(ValueError, match="rewards of group 1: must be finite numbers"):
        advantages([[1, 0], [0, wrong]], ObjectiveConfig())


# The loss by hand: one token. ln 1.5 = 0.405, ln 0.5 = -0.693.


@pytest.mark.parametrize(
    "ratio, advantage, loss, gradient",
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),  # within the bounds: the gradient of -r A is -r A
        (1.5, 2.0, -2.4, 0.0),  # better and already likelier by more than the clip: no further
        (0.5, 2.0, -1.0, -1.0),  # better and less likely: free
        (0.5, -2.0, 1.6, 0.0),  # worse and already less likely
        (1.5, -2.0, 3.0, 3.0),  # worse and likelier: free
    ],
)
def test_clipping_by_hand(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    logs = {"logprobs": math.log(ratio) - 1, "proximal": -1.0, "behaviour": -1.0, "reference": 0.0}
    made, tally, slope = one(ObjectiveConfig(kl=0), **logs, advantages=advantage)
    assert (made, slope) == pytest.approx((loss, gradient))
    assert tally.clipped == (gradient == 0) and tally.ratio == pytest.approx(ratio) and tally.weight == 1


def test_an_upper_bound_of_its_own() -> None:
    logs = {"logprobs": math.log(1.5), "proximal": 0.0, "behaviour": 0.0}
    assert one(ObjectiveConfig(kl=0, clip_high=0.28), **logs, advantages=1.0)[0] == pytest.approx(-1.28)


@pytest.mark.parametrize(
    "weight, capped, loss", [(0.1, 0, -0.2), (2.0, 0, -4.0), (4.99, 0, -9.98), (5.01, 1, 0.0), (1e30, 1, 0.0)]
)
def test_a_token_above_the_cap_loses_its_advantage_and_still_counts(weight: float, capped: int, loss: float) -> None:
    logs = {"logprobs": -1.0, "proximal": -1.0, "behaviour": -1.0 - math.log(weight)}
    made, tally, gradient = one(ObjectiveConfig(kl=0), **logs, advantages=2.0)
    assert made == gradient == pytest.approx(loss)
    assert (tally.capped, tally.tokens) == (capped, 1)


def test_without_decoupling_clipping_is_around_the_policy_that_sampled() -> None:
    logs = {"logprobs": math.log(1.5), "proximal": math.log(1.5), "behaviour": 0.0}
    config = ObjectiveConfig(kl=0, decoupled=False)
    assert one(config, **logs, advantages=1.0)[0] == pytest.approx(-1.2)  # ratio 1.5, clipped
    assert one(ObjectiveConfig(kl=0), **logs, advantages=1.0)[0] == pytest.approx(-1.5)  # ratio 1, weight 1.5


@pytest.mark.parametrize(
    "reference, kl, gradient",
    [(0.0, 0.0, 0.0), (math.log(2), 1 - math.log(2), -1.0), (-math.log(2), math.log(2) - 0.5, 0.5)],
)
def test_the_divergence_by_hand(reference: float, kl: float, gradient: float) -> None:
    logs = {"logprobs": 0.0, "proximal": 0.0, "behaviour": 0.0, "reference": reference}
    made, tally, slope = one(ObjectiveConfig(kl=0.5), **logs, advantages=0.0)
    assert (made, tally.kl, slope) == pytest.approx((0.5 * kl, kl, 0.5 * gradient))


def test_a_small_divergence_is_measured_in_single_precision_too() -> None:
    # exp(d) - d - 1 is about d² / 2 = 5e-9, of which float32 keeps nothing if 1 is taken away last.
    logprobs, zero = torch.full((1,), -1e-4), torch.zeros(1)
    mask = torch.tensor([True])
    parts = {"behaviour": zero, "advantages": zero, "mask": mask, "reference": zero}
    _, tally = token_loss(logprobs, **parts, config=ObjectiveConfig())
    assert tally.kl == pytest.approx(5e-9, rel=0.02)


def test_the_reference_is_needed_only_for_a_divergence_that_counts() -> None:
    parts = batch(0)
    reference = parts.pop("reference")
    with pytest.raises(ValueError, match=r"kl is 0\.01: it needs the reference model's log-probabilities"):
        token_loss(**parts, config=ObjectiveConfig())
    config = ObjectiveConfig(kl=0)
    without, tally, _ = graded(config, **parts)
    measured, with_one, _ = graded(config, **parts, reference=reference)
    assert without == measured and tally.kl == 0 and with_one.kl > 0


def test_no_proximal_policy_means_that_which_learns() -> None:
    parts = batch(1)
    same = parts | {"proximal": parts["logprobs"]}
    parts.pop("proximal")
    loss, tally, gradient = graded(ObjectiveConfig(), **parts)
    right, other, slope = graded(ObjectiveConfig(), **same)
    assert loss == right and tally == other and torch.equal(gradient, slope)
    assert tally.ratio == tally.tokens and tally.clipped == 0


# What holds of any batch.


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_finite_differences(seed: int, config: ObjectiveConfig) -> None:
    parts = batch(seed, tokens=25)
    logprobs = parts.pop("logprobs").requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_loss(x, **parts, config=config)[0], (logprobs,))


@pytest.mark.parametrize("config", CONFIGS)
def test_the_order_of_tokens_and_how_they_are_split_change_nothing(config: ObjectiveConfig) -> None:
    parts = batch(2, tokens=60)
    loss, tally, gradient = graded(config, **parts)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    total, summed, slopes = 0.0, Tally(), []
    for places in order.split([1, 20, 0, 39]):
        made, part, slope = graded(config, **{name: one[places] for name, one in parts.items()})
        total, summed, slopes = total + made, summed + part, [*slopes, slope]
    assert total == pytest.approx(loss)
    assert summed.means() == pytest.approx(tally.means()) and summed.tokens == tally.tokens
    torch.testing.assert_close(torch.cat(slopes), gradient[order])


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("junk", [math.nan, -math.inf, 1e4])
def test_what_is_not_learned_has_no_part_and_no_gradient(junk: float, config: ObjectiveConfig) -> None:
    parts = batch(3)
    loss, tally, gradient = graded(config, **parts)
    spoilt = {n: one if n == "mask" else one.masked_fill(~parts["mask"], junk) for n, one in parts.items()}
    assert graded(config, **spoilt)[:2] == (loss, tally)
    assert torch.equal(graded(config, **spoilt)[2], gradient) and not gradient[~parts["mask"]].any()
    as_integers = graded(config, **parts | {"mask": parts["mask"].long()})
    assert as_integers[0] == loss


def test_sub_agents_carry_their_episodes_advantage_or_are_left_out() -> None:
    # Two episodes, the first the better one; in each two main tokens, then three of a sub-agent.
    made = advantages([[1, 0]], ObjectiveConfig()).values[0]
    parts = {"logprobs": torch.full((10,), -1.0), "behaviour": torch.full((10,), -1.0)}
    parts["advantages"] = torch.tensor(made).repeat_interleave(5)
    main = torch.tensor([True, True, False, False, False] * 2)
    config = ObjectiveConfig(kl=0)
    _, tally, gradient = graded(config, **parts, mask=torch.ones(10).bool())
    assert tally.tokens == 10 and torch.equal(gradient, -parts["advantages"])
    _, tally, gradient = graded(config, **parts, mask=main)
    assert tally.tokens == 4 and torch.equal(gradient, -parts["advantages"] * main)


def test_no_advantage_and_no_divergence_give_no_gradient() -> None:
    parts = batch(4) | {"advantages": torch.zeros(40, dtype=torch.float64)}
    loss, tally, gradient = graded(ObjectiveConfig(kl=0), **parts)
    assert loss == 0 and not gradient.any() and tally.clipped == 0


def test_nothing_learned_is_a_loss_of_zero_that_can_be_gone_back_from() -> None:
    parts = batch(5) | {"mask": torch.zeros(40).bool()}
    loss, tally, gradient = graded(ObjectiveConfig(), **parts)
    assert loss == 0 and tally == Tally() and not gradient.any()
    assert set(tally.means().values()) == {0.0}


def test_the_tallies_of_processes_are_added_up() -> None:
    tallies = [graded(ObjectiveConfig(), **batch(seed))[1] for seed in (6, 7)]
    theirs = astuple(tallies[1])
    both = tallies[0].all_reduce(lambda *mine: [a + b for a, b in zip(mine, theirs, strict=True)])
    assert both == tallies[0] + tallies[1]
    assert both.means()["drift"] == pytest.approx(sum(t.drift for t in tallies) / sum(t.tokens for t in tallies))


@pytest.mark.parametrize("wrong", [{"clip": 0}, {"clip": 1}, {"kl": -1}, {"behaviour_cap": 1}, {"cilp": 0.2}])
def test_a_setting_that_does_not_fit_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        ObjectiveConfig(**wrong)  # type: ignore[arg-type]


# TRL, where it is installed.


@pytest.mark.parametrize("config", CONFIGS)
def test_loss_and_gradient_are_those_of_trl(config: ObjectiveConfig) -> None:
    """Its `bnpo` loss is the mean over a batch's tokens; its correction for vLLM is the behaviour weight."""
    pytest.importorskip("trl", reason="TRL is not installed")
    from trl.trainer.grpo_trainer import GRPOTrainer

    parts = {name: one.view(5, 12) for name, one in batch(8, tokens=60, spread=0.8).items()}
    # One advantage a rollout.
    parts["advantages"] = parts["advantages"][:, :1].expand(5, 12)
    loss, tally, gradient = graded(config, **parts)

    logprobs = parts["logprobs"].clone().requires_grad_()
    weight = (parts["proximal"] - parts["behaviour"]).exp()
    trainer = SimpleNamespace(
        loss_type="bnpo", importance_sampling_level="token", beta=config.kl,
        epsilon_low=config.clip, epsilon_high=config.clip_high or config.clip,
        use_vllm=config.decoupled, vllm_importance_sampling_correction=True,
        off_policy_mask_threshold=None, top_entropy_quantile=1.0, aux_loss_enabled=False,
        _entropy_bonus_enabled=False, use_adaptive_entropy=False,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False),
        model=SimpleNamespace(training=True), current_gradient_accumulation_steps=1,
        accelerator=SimpleNamespace(gather=lambda x: x, reduce=lambda x, reduction: x),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, torch.zeros(5, 12), None),
    )  # fmt: skip
    theirs = GRPOTrainer._compute_loss(
        trainer,
        None,
        {
            "prompt_ids": torch.zeros(5, 1),
            "prompt_mask": torch.ones(5, 1),
            "completion_ids": torch.zeros(5, 12),
            "completion_mask": parts["mask"].long(),
            "advantages": parts["advantages"][:, 0],
            "old_per_token_logps": parts["proximal" if config.decoupled else "behaviour"],
            "ref_per_token_logps": parts["reference"],
            "importance_sampling_ratio": weight.masked_fill(weight > config.behaviour_cap, 0),
        },
    )
    theirs.backward()
    assert loss / tally.tokens == pytest.approx(float(theirs.detach()), abs=1e-6)
    torch.testing.assert_close(gradient / tally.tokens, logprobs.grad, atol=1e-6, rtol=0)
    measured = {name: values[0] for name, values in trainer._metrics["train"].items()}
    assert tally.means()["clipped"] == pytest.approx(measured["clip_ratio/region_mean"])
    if config.kl:
        assert tally.means()["kl"] == pytest.approx(measured["kl"])
