"""Rollouts to samples: the very tokens that were fed and generated, with what the policy thought of them then."""

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
    """One context of an episode, the main agent's or a sub-agent's, from its first token to the last one generated."""

    who: Literal["main", "sub"]
    ids: list[int]
    """Fed and generated, each frame as one placeholder."""
    generated: list[bool]
    """Which of `ids` the model itself wrote; prompts, evidence and prefixes it did not."""
    logprobs: list[float]
    """One for each generated token, as recorded when it was sampled."""
    versions: list[int]
    """Of the weights that wrote it, likewise."""
    frames: list[FrameRef]
    """One for each placeholder, in their order."""


def trajectories(rollout: Rollout) -> list[Trajectory]:
    """The main agent's context, and each sub-agent's that generated something.

    Raises:
        ValueError: the record lacks log-probabilities or weight versions: it was not made for training.
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


def _trajectory(who: Literal["main", "sub"], turns: Sequence[GenerationRecord], frames: list[FrameRef]) -> Trajectory:
    ids: list[int] = []
    generated: list[bool] = []
    logprobs: list[float] = []
    versions: list[int] = []
    for turn in turns:
        if turn.logprobs is None or len(turn.logprobs) != len(turn.output_ids) or turn.weight_version is None:
            raise ValueError(f"request {turn.request_id}: has no log-probabilities or no weight version of its tokens")
        if not turn.weight_version.isdecimal():
            told = f"weights {turn.weight_version!r} wrote it, none of this run's; was the server started anew?"
            raise BackendError(f"request {turn.request_id}: {told}")
        ids += turn.fed_ids + turn.output_ids
        generated += [False] * len(turn.fed_ids) + [True] * len(turn.output_ids)
        logprobs += turn.logprobs
        versions += [int(turn.weight_version)] * len(turn.output_ids)
    return Trajectory(who=who, ids=ids, generated=generated, logprobs=logprobs, versions=versions, frames=frames)


def encode_trajectory(
    trajectory: Trajectory,
    encoder: Encoder,
    pictures: Callable[[FrameRef], Frame],
    *,
    version: int,
    skip_structure: bool = False,
) -> EncodedSample:
    """A trajectory as a sample; its advantages are still to come (`with_advantage`).

    Args:
        pictures: the frame that a record names.
        version: of the weights that are about to learn.
        skip_structure: leave tags out of the gradient (TD-GRPO, appendix H.3).

    Raises:
        ValueError: placeholders and frames do not go together.
    """
    chat: ChatTemplate = encoder.chat
    placeholders = trajectory.ids.count(chat.image_token_id)
    if placeholders != len(trajectory.frames):
        raise ValueError(
            f"{placeholders} placeholders but {len(trajectory.frames)} frames in a {trajectory.who} context"
        )
    said = [token for token, own in zip(trajectory.ids, trajectory.generated, strict=True) if own]
    kept = [not tag for tag in tag_token_mask(said, chat)] if skip_structure else [True] * len(said)
    places = iter(kept)
    learned = [own and next(places) for own in trajectory.generated]
    sample = encoder.sample(trajectory.ids, learned, [pictures(ref) for ref in trajectory.frames])
    chosen = torch.tensor(kept, dtype=torch.bool)
    return replace(
        sample,
        behaviour=torch.tensor(trajectory.logprobs, dtype=torch.float32)[chosen],
        fresh=(torch.tensor(trajectory.versions) == version)[chosen],
    )


def with_advantage(sample: EncodedSample, advantage: float) -> EncodedSample:
    """The sample with its episode's advantage at each learned token."""
    return replace(sample, advantages=torch.full_like(sample.behaviour, advantage))
