"""nFrames Gating (section 3.2.2): how many frames a prompt's overview may have, drawn anew at each of its visits."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from paravt_training.recipe import ConfigModel
from paravt_training.world.scene import stable_seed

BUDGETS = (4, 8, 16, 32, 64)


def nframes(run_seed: int, step: int, prompt_id: str, budgets: Sequence[int] = BUDGETS) -> int:
    """One of `budgets`, each as likely: n ~ Uniform({4, 8, 16, 32, 64}).

    A draw belongs to a visit: its run, step and prompt name it. So a group shares it, another step has another, and
    it is the same after a resume and in every process.

    >>> [nframes(0, step, "prompt 7") for step in range(6)]
    [16, 8, 4, 4, 16, 4]
    """
    return budgets[stable_seed("nframes", run_seed, step, prompt_id) % len(budgets)]


class GatingConfig(ConfigModel):
    """Whether and how overviews are cut. What is drawn is the rollouts' `Settings.frames`, a limit that `fps` keeps."""

    enabled: bool = True
    """Off, every overview has `frames`."""
    budgets: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(default=BUDGETS, min_length=1)
    """Frames an overview may have, drawn evenly; one named twice is drawn twice as often."""
    frames: int = Field(default=64, ge=1, le=4096)
    """The budget where gating is off."""

    def frames_at(self, *, run_seed: int, step: int, prompt_id: str) -> int:
        """The overview's budget for all rollouts of a prompt at a step."""
        return nframes(run_seed, step, prompt_id, self.budgets) if self.enabled else self.frames
