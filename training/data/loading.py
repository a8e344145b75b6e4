"""Batches made ahead of the trainer, in processes of their own, in one order that depends on the step alone."""

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
class Portion:
    """What one process learns in one step."""

    step: int
    rows: list[PackedRow]
    samples: int
    after: int
    """The number of the first conversation of the next step, over all processes."""
    dropped: tuple[str, ...] = ()
    """Why conversations are missing, one line each."""


class _Portions(Dataset[Portion]):  # type: ignore[misc]
    """Portion `(step, first)` of this process: made from the numbers alone."""

    def __init__(self, recipe: SftRecipe, source: ConversationSource, encoder: Encoder, rank: int, world: int):
        self.recipe, self.source, self.encoder = recipe, source, encoder
        self.rank, self.world = rank, world

    def __getitem__(self, place: tuple[int, int]) -> Portion:
        step, first = place
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
                name = f"conversation {number}"
                dropped.append(f"{name}: {len(sample)} tokens do not fit into row_tokens {self.recipe.row_tokens}")
                continue
            samples.append(sample)
        rows = pack(samples, self.recipe.row_tokens)
        return Portion(step=step, rows=rows, samples=len(samples), after=first + batch, dropped=tuple(dropped))


def portions(
    recipe: SftRecipe,
    source: ConversationSource,
    encoder: Encoder,
    *,
    step: int,
    first: int,
    rank: int = 0,
    world: int = 1,
) -> Iterator[Portion]:
    """This process's part of each step's data, from step `step` on.

    Args:
        first: the number of the conversation that step `step` begins with.
    """
    places = []
    for later in range(step, recipe.steps):
        places.append((later, first))
        first += recipe.batch_at(later)
    options: dict[str, Any] = {}
    if recipe.loaders:
        options = {"prefetch_factor": 4, "multiprocessing_context": "fork"}
    loader: DataLoader[Portion] = DataLoader(
        _Portions(recipe, source, encoder, rank, world),
        sampler=places,  # type: ignore[arg-type]
        batch_size=None,
        num_workers=recipe.loaders,
        generator=torch.Generator(),  # the loader draws from its own, not from the run's random state
        **options,
    )
    return iter(loader)
