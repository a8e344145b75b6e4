"""The cold start's data, without end: trace number 0, 1, 2, ... of a seed, each computed from its number alone.

A training run needs no files, can resume at any number, and any number of processes can share one stream.
"""

import random

from paravt_training.recipe import TraceMix
from paravt_training.world.questions import QUESTION_CYCLE, Split, WorldQuestion, question_at, scene_seed
from paravt_training.world.scene import Scene, stable_seed
from paravt_training.world.traces import Form, Trace, main_trace, perception_trace, random_window


def trace_at(seed: int, split: Split, number: int, mix: TraceMix | None = None, *, shared: bool = False) -> Trace:
    """Trace `number` of a stream: the same in every process, whatever was requested before.

    Args:
        mix: weights of the kinds of trace, `TraceMix()` by default; captions and reading are not in the stream.
        shared: let about five traces share a scene, as files do; by default each has a scene of its own.
    """
    mix = mix or TraceMix()
    draw = random.Random(stable_seed("trace", split, seed, number))
    kinds = ("perception", "parallel", "sequential", "overview", "reasoning", "direct")
    (kind,) = draw.choices(kinds, [getattr(mix, kind) for kind in kinds])

    def draw_question() -> WorldQuestion:
        if shared:
            cycle = len(QUESTION_CYCLE)
            return question_at(seed, split, number - number % cycle + draw.randrange(cycle))
        return question_at(seed, split, draw.randrange(2**40), per_scene=1)

    if kind == "perception":
        scene = draw_question().scene if shared else Scene.from_seed(scene_seed(split, "window", seed, number))
        return perception_trace(scene, random_window(scene, draw))
    frames, tool_code = draw.random() < mix.frames, draw.random() < mix.tool_code
    form: Form = "parallel" if kind == "parallel" else "sequential" if kind == "sequential" else "overview"
    while True:
        trace = main_trace(
            draw_question(),
            form,
            draw.choice(mix.budgets),
            protocol=kind if kind in ("reasoning", "direct") else "paravt",
            evidence="frames" if form == "sequential" and frames else "text",
            syntax="tool_code" if form != "overview" and tool_code else "tool_call",
        )
        if trace is not None:
            return trace
