"""The held-out measure: of a few traces never trained on, how many turns would be said exactly right.

Each token is judged given the right ones before it, in one forward pass; an episode of the engine is stricter, as
it goes on from its own words.
"""

from collections import Counter

import torch

from paravt_training.data.sources import WorldSource
from paravt_training.model.distributed import DistributedContext
from paravt_training.model.encode import Encoder
from paravt_training.model.packing import Learner, PackedRow, pack, supervised_loss
from paravt_training.recipe import SftRecipe, WorldData


class HeldOutSet:
    """This process's part of the held-out traces, made once."""

    def __init__(self, recipe: SftRecipe, encoder: Encoder, place: DistributedContext):
        assert isinstance(recipe.data, WorldData)
        wanted = recipe.held_out
        world = WorldSource(recipe.data.model_copy(update={"seed": wanted.seed}))
        numbers = range(place.rank, wanted.traces, place.world)
        samples = [encoder.encode(world.conversation(number, wanted.mix)) for number in numbers]
        self.rows: list[PackedRow] = pack([s for s in samples if len(s) <= recipe.row_tokens], recipe.row_tokens)
        self.place = place

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def measure(self, learner: Learner, spare: PackedRow) -> dict[str, float]:
        """Parts of turns that are right to the last token, by what is said and the kind of trace; and the loss."""
        right: Counter[str] = Counter()
        asked: Counter[str] = Counter()
        loss_sum, learned = 0.0, 0
        learner.eval()
        for number in range(self.place.most(len(self.rows))):
            row = (self.rows[number] if number < len(self.rows) else spare).to(self.place.device)
            loss, said = supervised_loss(learner, row)
            loss_sum, learned = loss_sum + float(loss), learned + len(row.targets)
            same = (said == row.targets).cpu()
            for span in row.spans:
                exact = bool(same[span.start : span.end].all())
                for name in _names(span.said, span.kind):
                    asked[name] += 1
                    right[name] += exact
        learner.train()
        names = sorted(NAMES)
        rights, askeds = [right[name] for name in names], [asked[name] for name in names]
        loss_all, learned_all, *counts = self.place.sums(loss_sum, learned, *rights, *askeds)
        halves = zip(names, counts[: len(names)], counts[len(names) :], strict=True)
        exact_parts = {f"held_out/{name}": r / a for name, r, a in halves if a}
        return {"held_out/loss": loss_all / max(1, learned_all)} | exact_parts


KINDS = ("reading", "parallel", "sequential", "overview", "reasoning", "direct")
NAMES = ("caption", "window", "calls", "answer", *(f"{said}_{kind}" for said in ("calls", "answer") for kind in KINDS))


def _names(said: str, kind: str) -> list[str]:
    return [kind if kind == "caption" else said] if said == "window" else [said, f"{said}_{kind}"]
