"""Turns rollouts into samples: exactly the tokens that were fed and generated, with their sampled log-probabilities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from paravt_infer.chat import ChatTemplate
from paravt_infer.errors import BackendError
from paravt_infer.rollout import FrameRef, GenerationRecord, Rollout
from paravt_infer.video.types import Frame
from paravt_training.model.encode import EncodedSample, Encoder
from paravt_training.rewards.ablations import tag_token_mask


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """One context of an episode, the main agent's or a sub-agent's, from its first token to the last generated one."""

    agent: Literal["main", "sub"]
    ids: list[int]
    """Fed and generated tokens, with one placeholder per frame."""
    generated: list[bool]
    """Which of `ids` the model generated, as opposed to prompts, evidence and prefixes."""
    logprobs: list[float]
    """One per generated token, as recorded when it was sampled."""
    versions: list[int]
    """Versions of the weights that generated each token."""
    frames: list[FrameRef]
    """One per placeholder, in order."""


def trajectories(rollout: Rollout) -> list[Trajectory]:
    """The main agent's context, and each sub-agent's that generated something.

    Raises:
        ValueError: the record lacks log-probabilities or weight versions: it was not made for training.
        BackendError: the weights that generated it are not of this run.
    """
    inlined = [
        ref for call in rollout.evidence if call.sub_agent is None and call.status == "ok" for ref in call.frames
    ]
    main = _trajectory("main", rollout.turns, [*rollout.overview, *inlined])
    subs = [
        _trajectory("sub", [call.sub_agent], call.frames)
        for call in rollout.evidence
        if call.sub_agent is not None and call.sub_agent.output_ids
    ]
    return [main, *subs]


def _trajectory(agent: Literal["main", "sub"], turns: Sequence[GenerationRecord], frames: list[FrameRef]) -> Trajectory:
    ids: list[int] = []
    generated: list[bool] = []
    logprobs: list[float] = []
    versions: list[int] = []
    for turn in turns:
        if turn.logprobs is None or len(turn.logprobs) != len(turn.output_ids) or turn.weight_version is None:
            raise ValueError(
                f"request {turn.request_id}: log-probabilities or weight version of its tokens are missing"
            )
        if not turn.weight_version.isdecimal():
            reason = (
                f"weights {turn.weight_version!r} generated it, which are not of this run; was the server restarted?"
            )
            raise BackendError(f"request {turn.request_id}: {reason}")
        ids += turn.fed_ids + turn.output_ids
        generated += [False] * len(turn.fed_ids) + [True] * len(turn.output_ids)
        logprobs += turn.logprobs
        versions += [int(turn.weight_version)] * len(turn.output_ids)
    return Trajectory(agent=agent, ids=ids, generated=generated, logprobs=logprobs, versions=versions, frames=frames)


def encode_trajectory(
    trajectory: Trajectory,
    encoder: Encoder,
    frame_of: Callable[[FrameRef], Frame],
    *,
    version: int,
    skip_structure: bool = False,
) -> EncodedSample:
    """Encode a trajectory as a sample; `with_advantage` adds its advantages.

    Args:
        frame_of: returns the frame that a record refers to.
        version: of the weights that learn from it.
        skip_structure: leave tags out of the gradient (TD-GRPO, appendix H.3).

    Raises:
        ValueError: the numbers of placeholders and frames differ.
    """
    chat: ChatTemplate = encoder.chat
    placeholders = trajectory.ids.count(chat.image_token_id)
    if placeholders != len(trajectory.frames):
        raise ValueError(
            f"{placeholders} placeholders but {len(trajectory.frames)} frames in a {trajectory.agent} context"
        )
    output = [token for token, generated in zip(trajectory.ids, trajectory.generated, strict=True) if generated]
    kept = [not is_tag for is_tag in tag_token_mask(output, chat)] if skip_structure else [True] * len(output)
    remaining = iter(kept)
    learned = [generated and next(remaining) for generated in trajectory.generated]
    sample = encoder.sample(trajectory.ids, learned, [frame_of(ref) for ref in trajectory.frames])
    chosen = torch.tensor(kept, dtype=torch.bool)
    return replace(
        sample,
        behaviour=torch.tensor(trajectory.logprobs, dtype=torch.float32)[chosen],
        fresh=(torch.tensor(trajectory.versions) == version)[chosen],
    )


def with_advantage(sample: EncodedSample, advantage: float) -> EncodedSample:
    """The sample with its episode's advantage at each learned token."""
    return replace(sample, advantages=torch.full_like(sample.behaviour, advantage))
