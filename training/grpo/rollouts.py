"""Groups of rollouts, made by the engine's own episode loop on a thread of its own while the trainer learns.

A step's groups are begun as soon as the weights are new enough, and every generated token carries the version of the
weights that wrote it. Which prompts a step visits, with how many frames and which seeds, follows from the recipe and
the step's number alone: a run that was stopped goes on with the same ones.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from paravt_infer.backends.base import Backend, derive_seed
from paravt_infer.engine import Engine
from paravt_infer.errors import ParavtError
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
    """The overview's budget that gating drew, for all of them."""
    rollouts: list[Rollout] = field(default_factory=list)
    """Those that did not fail, in the order of their seeds."""
    rewards: list[Reward] = field(default_factory=list)
    """One for each of `rollouts`."""
    samples: list[list[EncodedSample]] = field(default_factory=list)
    """Each rollout's contexts: the main agent's, then the sub-agents'. Without advantages yet."""
    failed: int = 0
    """Rollouts that failed for good."""
    why: str = ""
    """The last failure, one line."""
    retried: int = 0
    too_long: int = 0
    """Contexts that no row holds."""


class RolloutProducer:
    """Makes rollouts beside the trainer.

    Args:
        backend: token-exact; started and closed here.
        step: the first step that is asked for.

    Use it as a context manager; what happens on its thread and cannot go on is raised by the next call.
    """

    def __init__(self, recipe: GrpoRecipe, prompts: Prompts, backend: Backend, encoder: Encoder, *, step: int = 0):
        if not backend.exact_tokens:
            raise ValueError(f"backend {backend.name} does not know its tokens; train with sglang or transformers")
        self.recipe, self.prompts, self.encoder = recipe, prompts, encoder
        self.engine = Engine(backend, frame_source=prompts.frame_source)
        self.version = -1
        """Of the weights that generate; -1 until the first ones are handed over."""
        self.judge: RewardJudge | None = None
        self._next = step
        self._batches: dict[int, asyncio.Task[list[RolloutGroup]]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollouts", daemon=True)
        self._places: asyncio.Semaphore | None = None
        self._opened = AsyncExitStack()

    def __enter__(self) -> "RolloutProducer":
        self._thread.start()
        try:
            self._do(self._open())
        except BaseException:
            self._stop()
            raise
        return self

    async def _open(self) -> None:
        self._places = asyncio.Semaphore(self.recipe.rollouts.concurrency)
        async with AsyncExitStack() as opened:
            rewards = self.recipe.rewards
            if (
                rewards.accuracy == "judge" and rewards.judge
            ):  # first: a server for the engine may take minutes to start
                self.judge = await opened.enter_async_context(open_reward_judge(rewards.judge))
            await opened.enter_async_context(self.engine)
            self._opened = opened.pop_all()

    def __exit__(self, *exc: object) -> None:
        try:
            self._do(self._close())
        finally:
            self._stop()

    async def _close(self) -> None:
        for task in self._batches.values():
            task.cancel()
        await asyncio.gather(*self._batches.values(), return_exceptions=True)
        await self._opened.aclose()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result()

    def update(self, version: int, *, folder: Path | None = None, tensors: Mapping[str, Any] | None = None) -> None:
        """Hand over the weights of `version` (steps learned); returns when they are confirmed to generate.

        Episodes under way go on with them from their next request on; groups of the steps that these weights are new
        enough for are begun.

        Raises:
            BackendError: they were not taken or not confirmed.
        """
        self._do(self._update(version, folder, tensors))

    async def _update(self, version: int, folder: Path | None, tensors: Mapping[str, Any] | None) -> None:
        await self.engine.backend.update_weights(str(version), folder=folder, tensors=tensors)
        self.version = version
        last = min(self.recipe.steps, version + self.recipe.rollouts.staleness + 1)
        for step in range(self._next, last):
            self._batches[step] = asyncio.create_task(self._batch(step))
            self._next = step + 1

    def batch(self, step: int) -> list[RolloutGroup]:
        """The groups of a step, when all of its rollouts are there; in the order of its prompts."""
        return self._do(self._taken(step))

    async def _taken(self, step: int) -> list[RolloutGroup]:
        return await self._batches.pop(step)

    def rollouts(self, prompts: Sequence[Prompt], settings: Settings) -> list[Rollout]:
        """One rollout a prompt, in their order: for measures beside training."""

        async def run() -> list[Rollout]:
            return list(await asyncio.gather(*(self._episode(prompt, settings) for prompt in prompts)))

        return self._do(run())

    async def _batch(self, step: int) -> list[RolloutGroup]:
        count = self.recipe.prompts
        numbers = range(step * count, (step + 1) * count)
        return await together(self._group(step, number) for number in numbers)

    async def _group(self, step: int, number: int) -> RolloutGroup:
        recipe = self.recipe
        prompt = await asyncio.to_thread(self.prompts.prompt, number)
        frames = recipe.gating.frames_at(run_seed=recipe.seed, step=step, prompt_id=prompt.id)
        group = RolloutGroup(prompt=prompt, frames=frames)
        members = await together(self._member(group, step, member) for member in range(recipe.group))
        made = [member for member in members if member is not None]
        group.rollouts = [rollout for rollout, _ in made]
        group.samples = [samples for _, samples in made]
        group.failed = len(members) - len(made)
        judged = None
        if self.judge is not None:
            judged = await asyncio.gather(*(self.judge.grade(one, prompt.gold) for one in group.rollouts))
        group.rewards = group_rewards(group.rollouts, prompt.gold, recipe.rewards, step=step, judged=judged)
        return group

    async def _member(self, group: RolloutGroup, step: int, member: int) -> tuple[Rollout, list[EncodedSample]] | None:
        """One rollout and its contexts, run again where it failed; None where it fails for good."""
        recipe = self.recipe
        for attempt in range(recipe.rollouts.retries + 1):
            seed = derive_seed(recipe.seed, "rollout", step, group.prompt.id, member, attempt)
            assert seed is not None
            rollout = await self._episode(group.prompt, recipe.episode_settings(frames=group.frames, seed=seed))
            if rollout.status in ("answered", "no_answer"):
                try:
                    return rollout, await self._samples(group, rollout, step)
                except ParavtError as error:  # its frames cannot be had again
                    rollout.error = str(error)
            group.why = rollout.error or rollout.status
            group.retried += attempt < recipe.rollouts.retries
        return None

    async def _episode(self, prompt: Prompt, settings: Settings) -> Rollout:
        assert self._places is not None
        async with self._places:
            return await self.engine.ask(prompt.question, settings=settings)

    async def _samples(self, group: RolloutGroup, rollout: Rollout, step: int) -> list[EncodedSample]:
        recipe = self.recipe
        pictures = await self._pictures(rollout)
        contexts = trajectories(rollout)
        chosen = contexts if recipe.sub_agents else contexts[:1]

        def encode() -> list[EncodedSample]:
            return [
                encode_trajectory(
                    context,
                    self.encoder,
                    lambda ref: pictures[ref.digest],
                    version=step,
                    skip_structure=recipe.rewards.structural_mask,
                )
                for context in chosen
            ]

        samples = await asyncio.to_thread(encode)
        fitting = [sample for sample in samples if len(sample) <= recipe.row_tokens and sample.behaviour.numel()]
        group.too_long += sum(len(sample) > recipe.row_tokens for sample in samples)
        return fitting

    async def _pictures(self, rollout: Rollout) -> dict[str, Frame]:
        """The frames that a rollout looked at, by digest: decoded for its whole group once, and still in the store."""
        settings = rollout.settings
        sizing = self.engine.backend.frame_sizing(settings.min_pixels, settings.max_pixels)
        found: dict[str, Frame] = {}
        looks: list[list[FrameRef]] = [rollout.overview, *(call.frames for call in rollout.evidence)]
        for refs in filter(None, looks):
            frames = await self.engine.frame_source.frames(rollout.question.video, [ref.time for ref in refs], sizing)
            found |= {frame.digest: frame for frame in frames}
        lost = {ref.digest for refs in looks for ref in refs} - set(found)
        if lost:
            raise ParavtError(f"{rollout.question.video}: changed while rollout {rollout.id} looked at it")
        return found


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all, in their order; when one raises, the others are cancelled before that is told."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
