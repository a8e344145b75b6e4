"""Batches prepared ahead of the trainer, in worker processes, in an order that depends on the step alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from paravt_infer.errors import ParavtError
from paravt_training.data.sources import ConversationSource
from paravt_training.model.encode import EncodedSample, Encoder
from paravt_training.model.packing import PackedRow, pack
from paravt_training.recipe import SftRecipe


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBatch:
    """What one process learns in one step."""

    step: int
    rows: list[PackedRow]
    samples: int
    after: int
    """The number of the first conversation of the next step, over all processes."""
    dropped: tuple[str, ...] = ()
    """Why conversations were left out, one line each."""


class _StepBatches(Dataset[StepBatch]):  # type: ignore[misc]
    """The batch of this process for (step, first conversation)."""

    def __init__(self, recipe: SftRecipe, source: ConversationSource, encoder: Encoder, rank: int, world: int):
        self.recipe, self.source, self.encoder = recipe, source, encoder
        self.rank, self.world = rank, world

    def __getitem__(self, index: tuple[int, int]) -> StepBatch:
        step, first = index
        phase, _ = self.recipe.phase_at(step)
        batch = self.recipe.batch_at(step)
        samples: list[EncodedSample] = []
        dropped: list[str] = []
        for number in range(first + self.rank, first + batch, self.world):
            try:
                sample = self.encoder.encode(self.source.conversation(number, phase.mix))
            except ParavtError as error:
                dropped.append(str(error))
                continue
            if len(sample) > self.recipe.row_tokens:
                limit = self.recipe.row_tokens
                dropped.append(f"conversation {number}: {len(sample)} tokens do not fit into row_tokens {limit}")
                continue
            samples.append(sample)
        rows = pack(samples, self.recipe.row_tokens)
        return StepBatch(step=step, rows=rows, samples=len(samples), after=first + batch, dropped=tuple(dropped))


def step_batches(
    recipe: SftRecipe,
    source: ConversationSource,
    encoder: Encoder,
    *,
    step: int,
    first: int,
    rank: int = 0,
    world: int = 1,
) -> Iterator[StepBatch]:
    """This process's batches, from step `step` on.

    Args:
        first: the number of the conversation that step `step` begins with.
        rank: of this process, out of `world`.
    """
    indices = []
    for later in range(step, recipe.steps):
        indices.append((later, first))
        first += recipe.batch_at(later)
    options: dict[str, Any] = {}
    if recipe.loaders:
        options = {"prefetch_factor": 4, "multiprocessing_context": "fork"}
    loader: DataLoader[StepBatch] = DataLoader(
        _StepBatches(recipe, source, encoder, rank, world),
        sampler=indices,  # type: ignore[arg-type]
        batch_size=None,
        num_workers=recipe.loaders,
        generator=torch.Generator(),  # the loader must not draw from the run's random state
        **options,
    )
    return iter(loader)
