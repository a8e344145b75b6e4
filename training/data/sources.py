"""Sources of training conversations: the sample world, without end (Parquet files are in `parquet.py`).

A conversation is computed from its number alone, so that a run can resume at any number and processes share one order.
"""

import random
from typing import Protocol

from paravt_infer.chat import Message
from paravt_infer.protocols import get_protocol
from paravt_infer.video.types import Frame
from paravt_training.model.encode import Conversation
from paravt_training.recipe import TraceMix, WorldData
from paravt_training.world.augmentation import Augmentation
from paravt_training.world.questions import scene_seed
from paravt_training.world.scene import Scene, stable_seed
from paravt_training.world.stream import trace_at
from paravt_training.world.traces import Trace, render_messages


class ConversationSource(Protocol):
    """Conversations by number."""

    def conversation(self, number: int, mix: TraceMix) -> Conversation:
        """Conversation `number`: the same in every process.

        Raises:
            ParavtError: it cannot be used; the message names it.
        """


class WorldSource:
    """Traces of the sample world, frames drawn at the model's own size.

    Args:
        clean: leave out the augmentation.
    """

    def __init__(self, data: WorldData, *, clean: bool = False):
        self.data = data
        self.clean = clean

    def conversation(self, number: int, mix: TraceMix) -> Conversation:
        draw = random.Random(stable_seed("source", self.data.seed, number))
        others = (mix.perception, mix.parallel, mix.sequential, mix.overview, mix.reasoning, mix.direct)
        point = draw.random() * (mix.caption + mix.reading + sum(others))
        if point < mix.caption:
            return self._caption(number, draw)
        if point < mix.caption + mix.reading:
            return self._reading(number)
        trace = trace_at(self.data.seed, "train", number, mix)
        messages = render_messages(trace, (self.data.frame, self.data.frame))
        if not self.clean:
            augment = Augmentation(self.data, number)
            messages = [_augmented(message, augment) for message in messages]
        return trace_conversation(messages, trace, name=f"trace {number}")

    def _caption(self, number: int, draw: random.Random) -> Conversation:
        """One frame, nine times in ten with a shape on it, and its name."""
        scene = Scene.from_seed(scene_seed("train", "caption", self.data.seed, number))
        event = draw.choice(scene.events)
        time = draw.uniform(event.start, event.end) if draw.random() < 0.9 else float(draw.randrange(scene.duration))
        shown = scene.event_at(time)
        caption = f"a {shown.name}." if shown else f"nothing but the background, {scene.background}."
        image = scene.render(time, (self.data.frame, self.data.frame))
        frame = Frame(time, image if self.clean else Augmentation(self.data, number)(image))
        messages = [Message(role="user", parts=[frame]), Message(role="assistant", parts=[caption])]
        return Conversation(messages=messages, kind="caption", name=f"trace {number}")

    def _reading(self, number: int) -> Conversation:
        """Only the question, evidence and answer of a parallel trace."""
        mix = TraceMix(perception=0, parallel=1, sequential=0, overview=0, reasoning=0, direct=0, budgets=[4])
        trace = trace_at(self.data.seed, "train", number, mix)
        question = next(message for message in trace.messages if message.role == "user").parts[-1]
        messages = [
            Message(role="user", parts=[str(question)]),
            *(Message(role="tool", parts=[message.text]) for message in trace.messages if message.role == "tool"),
            Message(role="assistant", parts=[trace.messages[-1].text]),
        ]
        return Conversation(messages=messages, kind="reading", name=f"trace {number}")


def _augmented(message: Message, augment: Augmentation) -> Message:
    parts = [Frame(part.time, augment(part.pixels)) if isinstance(part, Frame) else part for part in message.parts]
    return Message(role=message.role, parts=parts)


def trace_conversation(messages: list[Message], trace: Trace, *, name: str = "") -> Conversation:
    """A trace's conversation, with frames already drawn."""
    return Conversation(
        messages=messages,
        stopped=frozenset(index for index, message in enumerate(trace.messages) if message.stopped),
        tools=get_protocol(trace.protocol).tools(),
        kind=trace.protocol if trace.form == "overview" and trace.protocol != "paravt" else trace.form,
        name=name,
    )
