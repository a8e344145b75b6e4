"""nFrames Gating (section 3.2.2): the overview's frame budget, drawn again at each visit of a prompt."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from paravt_infer.schema import FrozenModel
from paravt_training.world.scene import stable_seed

BUDGETS = (4, 8, 16, 32, 64)


def nframes(run_seed: int, step: int, prompt_id: str, budgets: Sequence[int] = BUDGETS) -> int:
    """A uniform draw from `budgets`: n ~ Uniform({4, 8, 16, 32, 64}).

    It depends only on the run's seed, the step and the prompt. So it is shared by a group, differs between steps, and
    is the same after a resume and in every process.

    >>> [nframes(0, step, "prompt 7") for step in range(6)]
    [16, 8, 4, 4, 16, 4]
    """
    return budgets[stable_seed("nframes", run_seed, step, prompt_id) % len(budgets)]


class GatingConfig(FrozenModel):
    """The overview's frame budget in rollouts: their `Settings.frames`, a maximum on top of `fps`."""

    enabled: bool = True
    """If off, every overview has the budget `frames`."""
    budgets: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(default=BUDGETS, min_length=1)
    """Budgets to draw from uniformly; one that is listed twice is drawn twice as often."""
    frames: int = Field(default=64, ge=1, le=4096)
    """The budget if gating is off."""

    def frames_at(self, *, run_seed: int, step: int, prompt_id: str) -> int:
        """The overview's frame budget for all rollouts of a prompt at a step."""
        return nframes(run_seed, step, prompt_id, self.budgets) if self.enabled else self.frames
