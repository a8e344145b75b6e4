"""Rollouts to samples: the very tokens of real episodes, and which of them are learned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paravt_infer import Engine, Settings
from paravt_infer.backends.base import Request
from paravt_infer.errors import BackendError
from paravt_infer.rollout import FrameRef, Rollout
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame
from paravt_training.grpo.trajectory import encode_trajectory, trajectories, with_advantage
from paravt_training.model.encode import IGNORED, EncodedSample, Encoder
from paravt_training.world.drawn_frames import DrawnFrames
from paravt_training.world.questions import question_at
from tests.fixtures.grpo_run import LOGPROB, Policy
from tests.fixtures.responses import call_text

THOUGHT = "<think>let me look there</think>"
ANSWER = "<think>it is the first one</think><answer>A</answer>"
SIZING = FrameSizing(multiple=32, max_pixels=4096)


@pytest.fixture(scope="module")
def encoder(start: Path) -> Encoder:
    return Encoder(str(start))


def twice(request: Request) -> str:
    """Two turns with calls, two windows in the first and one in the second, then an answer."""
    if not request.affinity:
        return "a blue star moves."
    turn = sum(message.role == "assistant" for message in request.messages)
    return [THOUGHT + call_text(0, 3) + call_text(5, 7), THOUGHT + call_text(9, 12), ANSWER, ANSWER][turn]


async def episode(
    start: Path, say: Callable[[Request], str | Exception] = twice, **settings: Any
) -> tuple[Rollout, DrawnFrames]:
    """A recorded episode on a question of the sample world, under weight version 3."""
    asked = question_at(0, "rl", 0)
    store = DrawnFrames()
    store.add(asked.question.video, asked.scene)
    policy = Policy(start, say)
    await policy.update_weights("3")
    values = {"frames": 4, "max_pixels": 4096, "temperature": 1.0, "logprobs": True, "seed": 5, **settings}
    async with Engine(policy, Settings(**values), frame_source=store) as engine:
        return await engine.ask(asked.question), store


async def samples(rollout: Rollout, store: DrawnFrames, encoder: Encoder, **options: Any) -> list[EncodedSample]:
    """All contexts of an episode as samples that weights of version 3 learn from."""
    found: dict[str, Frame] = {}
    for refs in (rollout.overview, *(call.frames for call in rollout.evidence)):
        frames = await store.frames(rollout.question.video, [ref.time for ref in refs], SIZING)
        found |= {frame.digest: frame for frame in frames}

    def picture(ref: FrameRef) -> Frame:
        return found[ref.digest]

    return [encode_trajectory(one, encoder, picture, **{"version": 3, **options}) for one in trajectories(rollout)]


WAYS = [(dispatch, evidence) for dispatch in ("parallel", "sequential") for evidence in ("text", "frames")]


@pytest.mark.parametrize(("dispatch", "evidence"), WAYS)
async def test_a_context_is_exactly_what_was_fed_and_generated(start: Path, dispatch: str, evidence: str) -> None:
    rollout, _ = await episode(start, dispatch=dispatch, evidence=evidence, think_prefix="first")
    main, *subs = trajectories(rollout)
    last = rollout.turns[-1]
    assert main.ids == rollout.input_ids(len(rollout.turns) - 1) + last.output_ids
    said = [token for token, own in zip(main.ids, main.generated, strict=True) if own]
    assert said == [token for turn in rollout.turns for token in turn.output_ids]
    assert len(main.logprobs) == len(main.versions) == len(said) and set(main.versions) == {3}
    inlined = [ref for call in rollout.evidence if evidence == "frames" and call.status == "ok" for ref in call.frames]
    assert main.frames == rollout.overview + inlined
    assert len(subs) == (0 if evidence == "frames" else len(rollout.evidence)) and len(rollout.evidence) > 1
    for sub, call in zip(subs, rollout.evidence, strict=False):
        assert call.sub_agent is not None
        assert sub.ids == call.sub_agent.fed_ids + call.sub_agent.output_ids and sub.frames == call.frames
        assert sum(sub.generated) == len(call.sub_agent.output_ids) == len(sub.logprobs)


async def test_only_what_the_model_wrote_is_learned(start: Path, encoder: Encoder) -> None:
    """Prompts, evidence, think prefixes and pictures are context."""
    rollout, store = await episode(start, think_prefix="every")
    main, *subs = await samples(rollout, store, encoder)
    decode = encoder.chat.tokenizer.decode
    written = "".join(turn.text + "<|im_end|>" for turn in rollout.turns)
    assert decode(main.labels[main.labels != IGNORED]) == written
    assert all(decode(sub.labels[sub.labels != IGNORED]) == "a blue star moves.<|im_end|>" for sub in subs)
    whole = decode(main.ids)
    assert whole.count("<think>\n<think>") == 3 and "blue star moves" in whole  # fed, and not in `written`
    for sample in (main, *subs):
        learned = sample.labels != IGNORED
        assert not bool((sample.ids == encoder.chat.image_token_id)[learned].any())
        assert torch.equal(sample.ids[learned], sample.labels[learned])
        assert len(sample.behaviour) == len(sample.fresh) == int(learned.sum())
        assert torch.equal(sample.behaviour, torch.full_like(sample.behaviour, LOGPROB))


@pytest.mark.parametrize("evidence", ["text", "frames"])
async def test_frames_stand_where_they_were_shown(start: Path, encoder: Encoder, evidence: str) -> None:
    rollout, store = await episode(start, evidence=evidence)
    main, *subs = await samples(rollout, store, encoder)
    shown = len(rollout.overview) + sum(len(call.frames) for call in rollout.evidence) * (evidence == "frames")
    assert len(main.image_grid_thw) == shown and int((main.ids == encoder.chat.image_token_id).sum()) == 4 * shown
    assert main.pixel_values.shape[0] == 16 * shown
    first = (await store.frames(rollout.question.video, [rollout.overview[0].time], SIZING))[0]
    assert torch.equal(main.pixel_values[:16], encoder.patches([first.pixels]))
    assert [len(sub.image_grid_thw) for sub in subs] == [3, 2, 3] * (evidence == "text")


async def test_a_sub_agent_that_failed_is_no_context(start: Path) -> None:
    def failing(request: Request) -> str | Exception:
        return BackendError("gone") if len(request.frames) == 2 else twice(request)

    rollout, _ = await episode(start, failing)
    assert [call.status for call in rollout.evidence] == ["ok", "error", "ok"]
    assert [len(one.frames) for one in trajectories(rollout)] == [4, 3, 3]


async def test_tokens_are_fresh_if_the_weights_that_learn_wrote_them(start: Path, encoder: Encoder) -> None:
    rollout, store = await episode(start)
    rollout.turns[0].weight_version = "1"
    main, *subs = await samples(rollout, store, encoder)
    old = len(rollout.turns[0].output_ids)
    assert not main.fresh[:old].any() and main.fresh[old:].all() and all(sub.fresh.all() for sub in subs)
    assert not (await samples(rollout, store, encoder, version=4))[0].fresh.any()


async def test_td_grpo_leaves_tags_out_of_the_gradient_and_nothing_else(start: Path, encoder: Encoder) -> None:
    rollout, store = await episode(start)
    for turn in rollout.turns:
        turn.logprobs = [-float(place) for place in range(len(turn.output_ids))]
    main, *_ = await samples(rollout, store, encoder, skip_structure=True)
    whole, *_ = await samples(rollout, store, encoder)
    decode = encoder.chat.tokenizer.decode
    learned = main.labels != IGNORED
    text = decode(main.labels[learned])
    assert "<think>" not in text and "</answer>" not in text and "let me look there" in text
    assert torch.equal(main.ids, whole.ids) and len(main.behaviour) == len(main.fresh) == int(learned.sum())
    kept = learned[whole.labels != IGNORED]
    assert torch.equal(main.behaviour, whole.behaviour[kept])  # each token keeps its own log-probability


async def test_an_advantage_is_given_to_each_learned_token(start: Path, encoder: Encoder) -> None:
    rollout, store = await episode(start)
    main, *_ = await samples(rollout, store, encoder)
    weighed = with_advantage(main, -0.75)
    assert torch.equal(weighed.advantages, torch.full((int((main.labels != IGNORED).sum()),), -0.75))
    assert main.advantages.numel() == 0


@pytest.mark.parametrize("lacks", ["logprobs", "weight_version"])
async def test_a_record_that_was_not_made_for_training_is_refused(start: Path, lacks: str) -> None:
    rollout, _ = await episode(start)
    setattr(rollout.turns[1], lacks, None)
    with pytest.raises(
        ValueError, match=rf"request {rollout.id}-1: log-probabilities or weight version of its tokens are missing"
    ):
        trajectories(rollout)


async def test_frames_and_placeholders_must_go_together(start: Path, encoder: Encoder) -> None:
    rollout, store = await episode(start)
    rollout.overview.pop()
    with pytest.raises(ValueError, match="4 placeholders but 3 frames in a main context"):
        await samples(rollout, store, encoder)
