"""Produces groups of rollouts with the engine, on a thread of its own, while the trainer learns.

The groups of a step are started as soon as the weights are new enough, and every generated token carries the version
of the weights that generated it. The prompts of a step, their frame budgets and their seeds depend only on the recipe
and the step's number, so a resumed run visits the same ones.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from paravt_infer.backends.base import derive_seed
from paravt_infer.engine import Engine, EngineSpec
from paravt_infer.errors import ParavtError, SettingsError
from paravt_infer.rollout import FrameRef, Rollout
from paravt_infer.settings import Settings
from paravt_infer.video.types import Frame
from paravt_training.grpo.prompts import Prompt, Prompts
from paravt_training.grpo.recipe import GrpoRecipe
from paravt_training.grpo.trajectory import encode_trajectory, trajectories
from paravt_training.model.encode import EncodedSample, Encoder
from paravt_training.rewards.judge import RewardJudge, open_reward_judge
from paravt_training.rewards.total import Reward, group_rewards

T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class RolloutGroup:
    """The rollouts of one visit of a prompt."""

    prompt: Prompt
    frames: int
    """The overview's frame budget that gating drew, the same for all of them."""
    rollouts: list[Rollout] = field(default_factory=list)
    """Those that did not fail, in the order of their seeds."""
    rewards: list[Reward] = field(default_factory=list)
    """One for each of `rollouts`."""
    samples: list[list[EncodedSample]] = field(default_factory=list)
    """Each rollout's contexts: the main agent's, then the sub-agents'. Advantages are added later."""
    failed: int = 0
    """Rollouts that failed after every retry."""
    failure: str = ""
    """The last failure, one line."""
    retried: int = 0
    too_long: int = 0
    """Contexts longer than a row."""


class RolloutProducer:
    """Produces rollouts in the background; use it as a context manager.

    An error on its thread is raised by the next call.

    Args:
        engine: opened and closed here; its backend must be token-exact.
        step: the first step that will be requested.
        say: gets a line when something is loading or starting.

    Raises:
        SettingsError: on entering: the backend is not token-exact.
        BackendError: on entering: the backend or the judge cannot be reached or started.
    """

    engine: Engine
    _portal: BlockingPortal

    def __init__(
        self,
        recipe: GrpoRecipe,
        prompts: Prompts,
        engine: EngineSpec,
        encoder: Encoder,
        *,
        step: int = 0,
        say: Callable[[str], None] = lambda line: None,
    ):
        self.recipe, self.prompts, self.encoder = recipe, prompts, encoder
        self.engine_spec, self.say = engine, say
        self.version = -1
        """The version of the weights that generate; -1 until the first ones are set."""
        self.judge: RewardJudge | None = None
        """Set on entering, if the recipe has one."""
        self._next_step = step
        self._steps: dict[int, Future[list[RolloutGroup]]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._episode_slots = asyncio.Semaphore(recipe.rollouts.concurrency)
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = portal = stack.enter_context(start_blocking_portal(name="rollouts"))
            rewards = self.recipe.rewards
            if rewards.accuracy == "judge" and rewards.judge:  # before the engine, whose server may take minutes
                judge = open_reward_judge(rewards.judge)
                self.judge = stack.enter_context(portal.wrap_async_context_manager(judge))
            opened = self.engine_spec.open(frame_source=self.prompts.frame_source, say=self.say)
            self.engine = stack.enter_context(portal.wrap_async_context_manager(opened))
            if not self.engine.backend.exact_tokens:
                name = self.engine.backend.name
                raise SettingsError(f"backend {name} does not return its token ids; train with sglang or transformers")
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._resources:
            for step in self._steps.values():
                step.cancel()
            # The engine stays open until the cancelled episodes have aborted their requests.
            self._portal.call(self._wait_for_running)

    async def _wait_for_running(self) -> None:
        await asyncio.gather(*self._running, return_exceptions=True)

    def update_weights(
        self, version: int, *, folder: Path | None = None, tensors: Mapping[str, Any] | None = None
    ) -> None:
        """Generate with the weights of `version` (steps learned) from now on; returns once the backend confirms it.

        Running episodes use them from their next request. Starts the groups of every step that these weights are new
        enough for.

        Raises:
            BackendError: the weights were not accepted or not confirmed.
        """
        update = self.engine.backend.update_weights
        self._wait_for(self._start(partial(update, str(version), folder=folder, tensors=tensors)))
        self.version = version
        end = min(self.recipe.steps, version + self.recipe.rollouts.staleness + 1)
        for step in range(self._next_step, end):
            self._steps[step] = self._start(partial(self._groups, step))
            self._next_step = step + 1

    def groups(self, step: int) -> list[RolloutGroup]:
        """The groups of a step in the order of its prompts; waits until all of its rollouts are done."""
        return self._wait_for(self._steps.pop(step))

    def rollouts(self, prompts: Sequence[Prompt], settings: Settings) -> list[Rollout]:
        """One rollout per prompt, in order: for measures apart from training."""
        return self._wait_for(self._start(lambda: run_all(self._episode(prompt, settings) for prompt in prompts)))

    def _start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start `work` on the engine's thread. Leaving this context manager waits until it has ended."""

        async def tracked() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                return await work()
            finally:
                self._running.remove(task)

        return self._portal.start_task_soon(tracked)

    @staticmethod
    def _wait_for(future: Future[T]) -> T:
        """The result of a task; the task is cancelled if the wait is interrupted, as by Ctrl-C."""
        try:
            return future.result()
        finally:
            future.cancel()  # has no effect on a task that has ended

    async def _groups(self, step: int) -> list[RolloutGroup]:
        count = self.recipe.prompts
        return await run_all(self._group(step, number) for number in range(step * count, (step + 1) * count))

    async def _group(self, step: int, number: int) -> RolloutGroup:
        recipe = self.recipe
        prompt = await asyncio.to_thread(self.prompts.prompt, number)
        frames = recipe.gating.frames_at(run_seed=recipe.seed, step=step, prompt_id=prompt.id)
        group = RolloutGroup(prompt=prompt, frames=frames)
        results = await run_all(self._member(group, step, member) for member in range(recipe.group))
        succeeded = [result for result in results if result is not None]
        group.rollouts = [rollout for rollout, _ in succeeded]
        group.samples = [samples for _, samples in succeeded]
        group.failed = len(results) - len(succeeded)
        judge = self.judge
        judged = None if judge is None else await run_all(judge.grade(r, prompt.gold) for r in group.rollouts)
        group.rewards = group_rewards(group.rollouts, prompt.gold, recipe.rewards, step=step, judged=judged)
        return group

    async def _member(self, group: RolloutGroup, step: int, member: int) -> tuple[Rollout, list[EncodedSample]] | None:
        """One rollout and its contexts; None if it fails after every retry."""
        recipe = self.recipe
        for attempt in range(recipe.rollouts.retries + 1):
            seed = derive_seed(recipe.seed, "rollout", step, group.prompt.id, member, attempt)
            assert seed is not None
            rollout = await self._episode(group.prompt, recipe.episode_settings(frames=group.frames, seed=seed))
            if rollout.status in ("answered", "no_answer"):
                try:
                    return rollout, await self._encode(group, rollout, step)
                except ParavtError as error:  # its frames could not be loaded again
                    rollout.error = str(error)
            group.failure = rollout.error or rollout.status
            group.retried += attempt < recipe.rollouts.retries
        return None

    async def _episode(self, prompt: Prompt, settings: Settings) -> Rollout:
        async with self._episode_slots:
            return await self.engine.ask(prompt.question, settings=settings)

    async def _encode(self, group: RolloutGroup, rollout: Rollout, step: int) -> list[EncodedSample]:
        """The samples of a rollout's contexts; those longer than a row are counted and left out."""
        recipe = self.recipe
        frames = await self._frames(rollout)
        contexts = trajectories(rollout)
        chosen = contexts if recipe.sub_agents else contexts[:1]
        encode = partial(
            encode_trajectory,
            encoder=self.encoder,
            frame_of=lambda ref: frames[ref.digest],
            version=step,
            skip_structure=recipe.rewards.structural_mask,
        )
        samples = await asyncio.to_thread(lambda: [encode(context) for context in chosen])
        group.too_long += sum(len(sample) > recipe.row_tokens for sample in samples)
        return [sample for sample in samples if len(sample) <= recipe.row_tokens and sample.behaviour.numel()]

    async def _frames(self, rollout: Rollout) -> dict[str, Frame]:
        """The frames of a rollout by digest: decoded once for its group and still cached."""
        settings = rollout.settings
        sizing = self.engine.backend.frame_sizing(settings.min_pixels, settings.max_pixels)
        found: dict[str, Frame] = {}
        requests: list[list[FrameRef]] = [rollout.overview, *(call.frames for call in rollout.evidence)]
        for refs in filter(None, requests):
            frames = await self.engine.frame_source.frames(rollout.question.video, [ref.time for ref in refs], sizing)
            found |= {frame.digest: frame for frame in frames}
        if {ref.digest for refs in requests for ref in refs} - set(found):
            raise ParavtError(f"{rollout.question.video}: the file has changed since rollout {rollout.id} read it")
        return found


async def run_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all, in order. When one raises, the others are cancelled and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
