"""Groups of rollouts: the engine's own episodes, their frames had once a group, never staler than is allowed."""

import asyncio
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paravt_infer.backends.base import Generation, Request
from paravt_infer.backends.openai import OpenAIBackend
from paravt_infer.errors import BackendError, SettingsError, VideoError
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame
from paravt_training.grpo.prompts import Prompt, Prompts, WorldPrompts, open_prompts
from paravt_training.grpo.recipe import GrpoRecipe
from paravt_training.grpo.rollouts import RolloutGroup, RolloutProducer
from paravt_training.model.encode import Encoder
from paravt_training.recipe import WorldData
from paravt_training.world.build import build
from paravt_training.world.drawn_frames import DrawnFrames
from tests.fixtures.grpo_run import BackendSpec, Policy, recipe, talk
from tests.fixtures.judge_server import judge_server
from tests.fixtures.responses import call_text

WORLD = WorldData(kind="world")
Say = Callable[[Request], str | Exception]


@pytest.fixture(scope="module")
def encoder(start: Path) -> Encoder:
    return Encoder(str(start))


@contextmanager
def producing(
    chosen: GrpoRecipe, encoder: Encoder, policy: Policy, *, step: int = 0, source: Prompts | None = None
) -> Iterator[RolloutProducer]:
    with RolloutProducer(
        chosen, source or open_prompts(chosen.data), BackendSpec(instance=policy), encoder, step=step
    ) as producer:
        yield producer


@pytest.fixture
def groups_of(tmp_path: Path, start: Path, encoder: Encoder) -> Callable[..., list[RolloutGroup]]:
    """The groups of a recipe's first step."""

    def made(say: Say = talk, *, source: Prompts | None = None, **changes: Any) -> list[RolloutGroup]:
        chosen = recipe(tmp_path, start, **changes)
        with producing(chosen, encoder, Policy(start, say), source=source) as producer:
            producer.update_weights(0)
            return producer.groups(0)

    return made


def direct(request: Request) -> str:
    return "<think>I have seen enough now</think><answer>A</answer>"


def tokens(groups: Sequence[RolloutGroup]) -> list[list[list[int]]]:
    """All that main agents generated, rollout by rollout."""
    return [[turn.output_ids for turn in rollout.turns] for group in groups for rollout in group.rollouts]


def versions(groups: Sequence[RolloutGroup]) -> set[int]:
    """Of the weights that wrote any of the groups' tokens."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    subs = [call.sub_agent for rollout in rollouts for call in rollout.evidence if call.sub_agent]
    return {int(one.weight_version or -1) for one in [*subs, *(turn for one in rollouts for turn in one.turns)]}


# Groups


def test_a_group_shares_its_prompt_and_its_budget(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    groups = groups_of(group=4)
    assert [group.prompt for group in groups] == [WorldPrompts(WORLD).prompt(number) for number in range(2)]
    for group in groups:
        assert len(group.rollouts) == len(group.rewards) == len(group.samples) == 4 and not group.failed
        assert {rollout.settings.frames for rollout in group.rollouts} == {group.frames}
        assert group.frames in (4, 8) and {len(rollout.overview) for rollout in group.rollouts} == {group.frames}
        assert len({rollout.settings.seed for rollout in group.rollouts}) == 4
        assert all(rollout.question == group.prompt.question for rollout in group.rollouts)


def test_an_overview_is_drawn_once_a_group_and_so_is_each_window(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    """For eight rollouts, and once more when they are made into samples."""
    source = WorldPrompts(WORLD)
    (group,) = groups_of(direct, source=source, group=8, prompts=1)
    assert source.drawn.drawn == group.frames == 8
    source = WorldPrompts(WORLD)
    (group,) = groups_of(source=source, group=8, prompts=1)
    assert sum(bool(rollout.evidence) for rollout in group.rollouts) > 1
    assert source.drawn.drawn == 8 + 3 + 3


def test_an_overview_is_decoded_once_a_group(tmp_path: Path, groups_of: Callable[..., list[RolloutGroup]]) -> None:
    build(tmp_path, "rl", 1, 0)
    data = {"kind": "parquet", "files": [str(tmp_path / "rl.parquet")]}
    source = open_prompts(recipe(tmp_path, tmp_path, data=data).data)
    read, decoded = source.frame_source.pool.read, []

    async def counted(index: Any, numbers: list[int], size: tuple[int, int]) -> Any:
        decoded.append(len(numbers))
        return await read(index, numbers, size)

    source.frame_source.pool.read = counted  # type: ignore[method-assign]
    (group,) = groups_of(direct, source=source, group=8, prompts=1, data=data)
    assert len(group.rollouts) == 8 and decoded == [group.frames]


def test_sub_agents_are_learned_with_their_episode_or_not_at_all(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    with_them, without = groups_of(group=8), groups_of(group=8, sub_agents=False)
    calls = [len(rollout.evidence) for group in with_them for rollout in group.rollouts]
    assert {0, 2} == set(calls)
    assert [len(own) for group in with_them for own in group.samples] == [1 + count for count in calls]
    assert {len(own) for group in without for own in group.samples} == {1}
    assert tokens(with_them) == tokens(without)


def test_contexts_that_no_row_holds_are_left_out_and_counted(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    whole = groups_of()
    assert not any(group.too_long for group in whole)
    longest = max(len(sample) for group in whole for own in group.samples for sample in own)
    cut = groups_of(row_tokens=longest - 1)
    assert sum(group.too_long for group in cut) >= 1
    assert all(len(sample) < longest for group in cut for own in group.samples for sample in own)
    assert all(len(group.samples) == len(group.rollouts) for group in cut)


def test_open_answers_go_to_the_judge_where_the_recipe_has_one(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    with judge_server(lambda prompt: "0.5") as judge:
        rewards = {"accuracy": "judge", "judge": {"server": judge.url}}
        groups = groups_of(prompts=5, rewards=rewards)
    graded = {group.prompt.gold.kind: {one.parts["accuracy"] for one in group.rewards} for group in groups}
    assert graded["open"] == {0.5} and 0.5 not in graded["choice"]
    assert len(judge.sent) == 2 * sum(group.prompt.gold.kind == "open" for group in groups)


# Failures


def failing(attempts: int) -> Say:
    """Each rollout's first `attempts` attempts fail; an attempt is known by its seed."""
    seen: dict[tuple[str, int], int] = {}

    def say(request: Request) -> str | Exception:
        if not request.affinity:
            return talk(request)
        key = (request.messages[-1].text, request.sampling.seed or 0)
        seen[key] = len(seen)
        return BackendError("out of memory") if seen[key] < attempts else talk(request)

    return say


def test_a_rollout_that_fails_is_run_again_with_another_seed(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    (group,) = groups_of(failing(2), prompts=1, group=2)
    (plain,) = groups_of(prompts=1, group=2)
    assert (len(group.rollouts), group.retried, group.failed) == (2, 2, 0)
    seeds, first = ({rollout.settings.seed for rollout in one.rollouts} for one in (group, plain))
    assert not seeds & first


def test_one_that_fails_again_is_dropped_and_counted(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    (group,) = groups_of(failing(5), prompts=1, group=4)
    assert (len(group.rollouts), len(group.rewards), len(group.samples)) == (3, 3, 3)
    assert (group.failed, group.failure) == (1, "out of memory")
    (group,) = groups_of(failing(3), prompts=1, group=4, rollouts={"retries": 0})
    assert (len(group.rollouts), group.failed, group.retried) == (1, 3, 0)


def test_a_group_of_which_all_fail_is_empty(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    groups = groups_of(lambda request: BackendError("gone"))
    assert all((group.failed, group.retried, group.rollouts, group.samples) == (2, 2, [], []) for group in groups)


def test_a_server_that_was_started_anew_under_the_run_costs_what_it_wrote(
    tmp_path: Path, start: Path, encoder: Encoder
) -> None:
    """It serves the weights that it found then, under a version of its own."""

    class Restarted(Policy):
        async def generate(self, request: Request) -> Generation:
            generation = await super().generate(request)
            return dataclasses.replace(generation, weight_version="default")

    chosen = recipe(tmp_path, start, prompts=1, group=2, rollouts={"retries": 0})
    with RolloutProducer(chosen, WorldPrompts(WORLD), BackendSpec(instance=Restarted(start)), encoder) as producer:
        producer.update_weights(0, folder=start)
        (group,) = producer.groups(0)
    assert (group.rollouts, group.failed) == ([], 2)
    assert group.failure.endswith(
        "weights 'default' generated it, which are not of this run; was the server restarted?"
    )


def test_frames_that_cannot_be_had_again_cost_their_rollout_and_no_more(
    groups_of: Callable[..., list[RolloutGroup]],
) -> None:
    class Changing(DrawnFrames):
        """Its video is written anew after two looks."""

        looks = 0

        async def frames(self, path: str, times: Sequence[float], sizing: FrameSizing) -> list[Frame]:
            self.looks += 1
            if self.looks == 3:
                raise VideoError(f"{path}: changed while it was read")
            return await super().frames(path, times, sizing)

    source = WorldPrompts(WORLD)
    source.frame_source = source.drawn = Changing()
    (group,) = groups_of(direct, source=source, prompts=1, group=2, rollouts={"retries": 0, "concurrency": 1})
    assert (len(group.rollouts), group.failed) == (1, 1) and "changed while it was read" in group.failure


def test_a_sub_agent_that_fails_fails_no_rollout(groups_of: Callable[..., list[RolloutGroup]]) -> None:
    groups = groups_of(lambda request: talk(request) if request.affinity else BackendError("gone"), group=8)
    assert not any(group.failed for group in groups)
    evidence = [call for group in groups for rollout in group.rollouts for call in rollout.evidence]
    assert evidence and {call.status for call in evidence} == {"error"}
    assert all(len(own) == 1 for group in groups for own in group.samples)


# Versions


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_no_token_is_older_than_allowed(tmp_path: Path, start: Path, encoder: Encoder, staleness: int) -> None:
    chosen = recipe(tmp_path, start, steps=6, rollouts={"staleness": staleness})
    ages = []
    with producing(chosen, encoder, Policy(start)) as producer:
        for step in range(6):
            producer.update_weights(step)
            groups = producer.groups(step)
            ages += [step - version for version in versions(groups)]
            stale = [not bool(s.fresh.all()) for group in groups for own in group.samples for s in own]
            assert any(stale) == (versions(groups) != {step})
    assert max(ages) <= staleness and min(ages) == 0
    assert (max(ages) > 0) == (staleness > 0)  # rollouts are made ahead, where that is allowed


def test_synchronous_rollouts_wait_for_their_weights(tmp_path: Path, start: Path, encoder: Encoder) -> None:
    policy = Policy(start)
    with producing(recipe(tmp_path, start), encoder, policy) as producer:
        producer.update_weights(0)
        producer.groups(0)
        asked = len(policy.requests)
        producer.rollouts([], producer.recipe.episode_settings(frames=4, seed=0))  # the loop has had its turn
        assert len(policy.requests) == asked
        producer.update_weights(1)
        assert versions(producer.groups(1)) == {1}


def test_an_episode_under_way_goes_on_with_new_weights_and_each_token_tells_its_own(
    tmp_path: Path, start: Path, encoder: Encoder
) -> None:
    def say(request: Request) -> str:
        if not request.affinity:
            policy.version = "1"  # the update comes while the sub-agents look
            return "a red circle."
        policy.version = policy.version if len(request.messages) > 2 else "0"
        said = any(message.role == "assistant" for message in request.messages)
        return direct(request) if said else "<think>I must look closely</think>" + call_text(1, 4)

    policy = Policy(start, say)
    chosen = recipe(tmp_path, start, prompts=1, steps=2, rollouts={"staleness": 1, "concurrency": 1})
    with producing(chosen, encoder, policy) as producer:
        producer.update_weights(0)
        (old,), (group,) = producer.groups(0), producer.groups(1)
    for rollout, (main, sub) in zip(group.rollouts, group.samples, strict=True):
        first, last = rollout.turns
        assert (first.weight_version, last.weight_version) == ("0", "1")
        assert main.fresh.tolist() == [False] * len(first.output_ids) + [True] * len(last.output_ids)
        assert sub.fresh.all()
    assert not any(own[1].fresh.any() for own in old.samples)


def test_a_run_that_goes_on_makes_the_rollouts_that_it_would_have_made(
    tmp_path: Path, start: Path, encoder: Encoder
) -> None:
    chosen = recipe(tmp_path, start, group=4)
    with producing(chosen, encoder, Policy(start)) as producer:
        producer.update_weights(0)
        producer.groups(0)
        producer.update_weights(1)
        whole = producer.groups(1)
    with producing(chosen, encoder, Policy(start), step=1) as producer:
        producer.update_weights(1)
        again = producer.groups(1)
    assert [(group.prompt, group.frames) for group in whole] == [(group.prompt, group.frames) for group in again]
    assert tokens(whole) == tokens(again)
    other = chosen.model_copy(update={"seed": 1})
    with producing(other, encoder, Policy(start), step=1) as producer:
        producer.update_weights(1)
        assert tokens(producer.groups(1)) != tokens(whole)


def test_weights_that_are_not_taken_stop_the_run(tmp_path: Path, start: Path, encoder: Encoder) -> None:
    class Stubborn(Policy):
        async def update_weights(self, version: str, **given: Any) -> None:
            raise BackendError("http://a says it serves weight version 0, not 1")

    with producing(recipe(tmp_path, start), encoder, Stubborn(start)) as producer, pytest.raises(
        BackendError, match="says it serves weight version 0, not 1"
    ):  # fmt: skip
        producer.update_weights(1)
    assert producer.version == -1


# The loop


def test_only_so_many_episodes_run_at_once(tmp_path: Path, start: Path, encoder: Encoder) -> None:
    class Counting(Policy):
        async def generate(self, request: Request) -> Generation:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            try:
                await asyncio.sleep(0)
                return await super().generate(request)
            finally:
                self.running -= 1

    policy = Counting(start, direct)
    with producing(recipe(tmp_path, start, group=8, rollouts={"concurrency": 3}), encoder, policy) as producer:
        producer.update_weights(0)
        producer.groups(0)
    assert policy.most_running == 3


def test_other_prompts_can_be_asked_beside_the_groups(tmp_path: Path, start: Path, encoder: Encoder) -> None:
    """The measure on held-out questions."""
    chosen = recipe(tmp_path, start)
    with producing(chosen, encoder, Policy(start)) as producer:
        producer.update_weights(0)
        prompts = [producer.prompts.prompt(number) for number in (9, 3, 7)]
        made = producer.rollouts(prompts, chosen.episode_settings(frames=4, seed=0))
        assert [rollout.question for rollout in made] == [prompt.question for prompt in prompts]
        assert {rollout.status for rollout in made} == {"answered"}
        assert len(producer.groups(0)) == 2


def test_a_prompt_that_cannot_be_used_stops_the_run_with_its_name(
    tmp_path: Path, start: Path, encoder: Encoder
) -> None:
    class Broken(WorldPrompts):
        def prompt(self, number: int) -> Prompt:
            if number == 3:
                raise SettingsError("rl.parquet, row 4: names no video")
            return super().prompt(number)

    policy = Policy(start)
    with producing(recipe(tmp_path, start), encoder, policy, source=Broken(WORLD)) as producer:
        producer.update_weights(0)
        assert len(producer.groups(0)) == 2
        producer.update_weights(1)
        with pytest.raises(SettingsError, match=r"rl\.parquet, row 4: names no video"):
            producer.groups(1)


class Endless(Policy):
    """Its requests end only by being cancelled, and that takes a moment, as at a server.

    Args:
        on_request: called, on the engine's thread, by the first request.
    """

    def __init__(self, model: Path, on_request: Callable[[], None] = lambda: None):
        super().__init__(model)
        self.on_request = on_request
        self.started = asyncio.Event()
        self.closed = False
        self.closed_before_end: list[bool] = []

    async def generate(self, request: Request) -> Generation:
        self.running += 1
        if not self.started.is_set():
            self.started.set()
            self.on_request()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            self.running -= 1
            self.closed_before_end.append(self.closed)
        raise AssertionError

    async def close(self) -> None:
        self.closed = True


def interrupt() -> None:
    """Ctrl-C, as the main thread gets it."""
    thread = threading.main_thread().ident
    assert thread is not None
    signal.pthread_kill(thread, signal.SIGINT)


def test_closing_cancels_what_is_under_way(tmp_path: Path, start: Path, encoder: Encoder) -> None:
    policy = Endless(start)
    with producing(recipe(tmp_path, start), encoder, policy) as producer:
        producer.update_weights(0)
        while not policy.running:
            producer.rollouts([], producer.recipe.episode_settings(frames=4, seed=0))
    assert policy.running == 0 and policy.closed_before_end and not any(policy.closed_before_end)


def wait_for_groups(producer: RolloutProducer) -> None:
    producer.update_weights(0)
    producer.groups(0)


def wait_for_rollouts(producer: RolloutProducer) -> None:
    prompts = [producer.prompts.prompt(number) for number in range(3)]
    producer.rollouts(prompts, producer.recipe.episode_settings(frames=4, seed=0))


@pytest.mark.parametrize("wait", [wait_for_groups, wait_for_rollouts])
def test_ctrl_c_cancels_the_rollouts_that_are_waited_for(
    tmp_path: Path, start: Path, encoder: Encoder, wait: Callable[[RolloutProducer], None]
) -> None:
    policy = Endless(start, on_request=interrupt)
    with (
        pytest.raises(KeyboardInterrupt),
        producing(recipe(tmp_path, start), encoder, policy) as producer,
    ):
        wait(producer)
    assert policy.running == 0 and policy.closed_before_end and not any(policy.closed_before_end)


def test_a_backend_that_does_not_know_its_tokens_is_refused(tmp_path: Path, start: Path, encoder: Encoder) -> None:
    class Chat(Policy):
        name, exact_tokens = "openai", OpenAIBackend.exact_tokens

    producer = RolloutProducer(recipe(tmp_path, start), WorldPrompts(WORLD), BackendSpec(instance=Chat(start)), encoder)
    told = "backend openai does not return its token ids; train with sglang or transformers"
    with pytest.raises(SettingsError, match=told), producer:
        pass
    assert "rollouts" not in {thread.name for thread in threading.enumerate()}


def test_a_backend_that_does_not_start_leaves_no_thread(tmp_path: Path, start: Path, encoder: Encoder) -> None:
    class Absent(Policy):
        async def start(self) -> None:
            raise BackendError("http://a cannot be reached")

    producer = RolloutProducer(
        recipe(tmp_path, start), WorldPrompts(WORLD), BackendSpec(instance=Absent(start)), encoder
    )
    with pytest.raises(BackendError, match="cannot be reached"), producer:
        pass
    assert "rollouts" not in {thread.name for thread in threading.enumerate()}


def test_a_judge_that_cannot_be_had_stops_the_run_before_a_server_is_started(
    tmp_path: Path, start: Path, encoder: Encoder
) -> None:
    class Started(Policy):
        started = False

        async def start(self) -> None:
            self.started = True

    backend = Started(start)
    rewards = {"accuracy": "judge", "judge": {"server": "http://127.0.0.1:9"}}
    chosen = recipe(tmp_path, start, rewards=rewards)
    producer = RolloutProducer(chosen, WorldPrompts(WORLD), BackendSpec(instance=backend), encoder)
    with pytest.raises(BackendError, match=r"127\.0\.0\.1:9"), producer:
        pass
    assert not backend.started and "rollouts" not in {thread.name for thread in threading.enumerate()}
