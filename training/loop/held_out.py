"""The held-out measure of SFT: the share of turns that greedy decoding reproduces exactly, on held-out traces.

Each token is predicted from the right ones before it, in one forward pass. An episode of the engine is stricter: it
continues from its own tokens.
"""

from collections import Counter

import torch

from paravt_training.data.sources import WorldSource
from paravt_training.model.distributed import DistributedContext
from paravt_training.model.encode import Encoder, LearnedSpan
from paravt_training.model.packing import Learner, PackedRow, pack, padded_rows, supervised_loss
from paravt_training.recipe import SftRecipe, WorldData


class HeldOutSet:
    """This process's share of the held-out traces, encoded once."""

    def __init__(self, recipe: SftRecipe, encoder: Encoder, distributed: DistributedContext):
        assert isinstance(recipe.data, WorldData)
        config = recipe.held_out
        world = WorldSource(recipe.data.model_copy(update={"seed": config.seed}))
        numbers = range(distributed.rank, config.traces, distributed.world_size)
        samples = [encoder.encode(world.conversation(number, config.mix)) for number in numbers]
        self.rows: list[PackedRow] = pack([s for s in samples if len(s) <= recipe.row_tokens], recipe.row_tokens)
        self.distributed = distributed

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def measure(self, learner: Learner, padding: PackedRow) -> dict[str, float]:
        """The loss, and shares of exactly right turns by kind of turn and of trace; every process must call it."""
        right: Counter[str] = Counter()
        total: Counter[str] = Counter()
        loss_sum, learned = 0.0, 0
        learner.eval()
        for row in padded_rows(self.rows, padding, self.distributed):
            loss, predicted = supervised_loss(learner, row)
            loss_sum, learned = loss_sum + float(loss), learned + len(row.targets)
            matches = (predicted == row.targets).cpu()
            for span in row.spans:
                exact = bool(matches[span.start : span.end].all())
                for name in _names(span):
                    total[name] += 1
                    right[name] += exact
        learner.train()
        loss_sum, learned_sum, *counts = self.distributed.sum(
            loss_sum, learned, *(right[name] for name in NAMES), *(total[name] for name in NAMES)
        )
        pairs = zip(NAMES, counts[: len(NAMES)], counts[len(NAMES) :], strict=True)
        shares = {f"held_out/{name}": right_sum / total_sum for name, right_sum, total_sum in pairs if total_sum}
        return {"held_out/loss": loss_sum / max(1, learned_sum)} | shares


KINDS = ("reading", "parallel", "sequential", "overview", "reasoning", "direct")
NAMES = sorted(
    ("caption", "window", "calls", "answer", *(f"{turn}_{kind}" for turn in ("calls", "answer") for kind in KINDS))
)


def _names(span: LearnedSpan) -> list[str]:
    """The shares that a turn counts in."""
    if span.turn == "window":
        return ["caption" if span.kind == "caption" else "window"]
    return [span.turn, f"{span.turn}_{span.kind}"]
