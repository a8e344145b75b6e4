"""The cold start's data without end: trace number 0, 1, 2, ... of a seed, each to be had alone.

So a training run needs no files, can be resumed at any number, and any number of processes share one stream.
"""

import random
from dataclasses import dataclass
from itertools import count

from paravt_training.world.questions import FORMS, Split, WorldQuestion, question_at, scene_seed
from paravt_training.world.scene import Scene, seed_of
from paravt_training.world.traces import Form, Trace, any_window, main_trace, perception_trace
from paravt_training.world.windows import BUDGETS


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """What a stream holds. The first six are weights.

    Perception first, then all: ``Mix(parallel=0, sequential=0, overview=0, reasoning=0, direct=0)``, then ``Mix()``.
    """

    perception: float = 0.4
    """A sub-agent's look at one window."""
    parallel: float = 0.3
    """All windows of a question in one turn."""
    sequential: float = 0.1
    """One window a turn."""
    overview: float = 0.1
    """Questions that the overview answers, in the tool protocol, without a call."""
    reasoning: float = 0.05
    """The protocol `reasoning`, where the overview shows the evidence."""
    direct: float = 0.05
    """The protocol `direct`, where the overview shows the evidence."""
    budgets: tuple[int, ...] = BUDGETS
    """Frames the overview may have, each as likely as the others."""
    frames: float = 0.2
    """The part of the sequential traces whose calls return frames, not summaries."""
    tool_code: float = 0.0
    """The part of the traces with calls that write them as `<tool_code>`: the prior that models revert to."""


def trace_at(seed: int, split: Split, number: int, mix: Mix | None = None, *, shared: bool = False) -> Trace:
    """Trace `number` of a stream: the same in every process, whatever was asked for before.

    Args:
        mix: `Mix()` by default.
        shared: let traces share scenes, about five each, as files want it; by default each has a scene of its own.
    """
    mix = mix or Mix()
    draw = random.Random(seed_of("trace", split, seed, number))
    names = ("perception", "parallel", "sequential", "overview", "reasoning", "direct")
    (name,) = draw.choices(names, [getattr(mix, name) for name in names])

    def question() -> WorldQuestion:
        if shared:
            return question_at(seed, split, number - number % len(FORMS) + draw.randrange(len(FORMS)))
        return question_at(seed, split, draw.randrange(2**40), per_scene=1)

    if name == "perception":
        scene = question().scene if shared else Scene.from_seed(scene_seed(split, "window", seed, number))
        return perception_trace(scene, any_window(scene, draw))
    in_frames, in_code = draw.random() < mix.frames, draw.random() < mix.tool_code
    form: Form = "parallel" if name == "parallel" else "sequential" if name == "sequential" else "overview"
    for _ in count():
        trace = main_trace(
            question(),
            form,
            draw.choice(mix.budgets),
            protocol=name if name in ("reasoning", "direct") else "paravt",
            evidence="frames" if form == "sequential" and in_frames else "text",
            syntax="tool_code" if form != "overview" and in_code else "tool_call",
        )
        if trace is not None:
            return trace
    raise AssertionError("unreachable")
