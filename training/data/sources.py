"""Where conversations come from: the sample world, endless, or Parquet files. Each is had by its number alone.

So a run can go on at any number, and any number of processes share one order.
"""

import io
import random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from paravt_infer.chat import Message
from paravt_infer.protocols import get_protocol
from paravt_infer.video.types import Frame
from paravt_training.model.encode import Conversation
from paravt_training.recipe import TraceMix, WorldData
from paravt_training.world.questions import scene_seed
from paravt_training.world.scene import Scene, seed_of
from paravt_training.world.stream import Mix, trace_at
from paravt_training.world.traces import Trace, messages_of


class ConversationSource(Protocol):
    """Conversations by number."""

    def conversation(self, number: int, mix: TraceMix) -> Conversation:
        """Conversation `number`: the same in every process.

        Raises:
            ParavtError: it cannot be had; the message names it.
        """


class WorldSource:
    """Traces of the sample world, frames drawn at the model's own size."""

    def __init__(self, data: WorldData, *, clean: bool = False):
        self.data = data
        self.clean = clean

    def conversation(self, number: int, mix: TraceMix) -> Conversation:
        draw = random.Random(seed_of("source", self.data.seed, number))
        place = draw.random() * _weight(mix)
        if place < mix.caption:
            return self._caption(number, draw)
        if place < mix.caption + mix.reading:
            return self._reading(number)
        values = mix.model_dump(exclude={"caption", "reading"}) | {"budgets": tuple(mix.budgets)}
        trace = trace_at(self.data.seed, "train", number, Mix(**values))
        messages = messages_of(trace, (self.data.frame, self.data.frame))
        if not self.clean:
            wear = Augmentation(self.data, number)
            messages = [self._worn(message, wear) for message in messages]
        return conversation_of(messages, trace, name=f"trace {number}")

    def _caption(self, number: int, draw: random.Random) -> Conversation:
        """One frame, nine times in ten with something on it, and its name."""
        scene = Scene.from_seed(scene_seed("train", "caption", self.data.seed, number))
        event = draw.choice(scene.events)
        time = draw.uniform(event.start, event.end) if draw.random() < 0.9 else float(draw.randrange(scene.duration))
        shown = scene.event_at(time)
        said = f"a {shown.name}." if shown else f"nothing but the background, {scene.background}."
        picture = scene.picture(time, (self.data.frame, self.data.frame))
        frame = Frame(time, picture if self.clean else Augmentation(self.data, number)(picture))
        messages = [Message(role="user", parts=[frame]), Message(role="assistant", parts=[said])]
        return Conversation(messages=messages, kind="caption", name=f"trace {number}")

    def _reading(self, number: int) -> Conversation:
        """A parallel trace's question, evidence and answer alone."""
        calls = Mix(perception=0, parallel=1, sequential=0, overview=0, reasoning=0, direct=0, budgets=(4,))
        trace = trace_at(self.data.seed, "train", number, calls)
        question = next(said for said in trace.messages if said.role == "user").parts[-1]
        evidence = [said for said in trace.messages if said.role == "tool"]
        messages = [
            Message(role="user", parts=[str(question)]),
            *(Message(role=said.role, parts=[said.text]) for said in evidence),
            Message(role="assistant", parts=[trace.messages[-1].text]),
        ]
        return Conversation(messages=messages, kind="reading", name=f"trace {number}")

    def _worn(self, message: Message, wear: "Augmentation") -> Message:
        parts = [Frame(part.time, wear(part.pixels)) if isinstance(part, Frame) else part for part in message.parts]
        return Message(role=message.role, parts=parts)


def _weight(mix: TraceMix) -> float:
    kinds = (mix.perception, mix.parallel, mix.sequential, mix.overview, mix.reasoning, mix.direct)
    return mix.caption + mix.reading + sum(kinds)


def conversation_of(messages: list[Message], trace: Trace, *, name: str = "") -> Conversation:
    """A trace's conversation, with frames already drawn."""
    return Conversation(
        messages=messages,
        stopped=frozenset(number for number, said in enumerate(trace.messages) if said.stopped),
        tools=get_protocol(trace.protocol).tools(),
        kind=trace.protocol if trace.form == "overview" and trace.protocol != "paravt" else trace.form,
        name=name,
    )


class Augmentation:
    """What recording, compression and resizing do to pictures, drawn once a trace."""

    def __init__(self, data: WorldData, number: int):
        self.draw = np.random.default_rng(seed_of("wear", data.seed, number))
        self.light = 1 + self.draw.uniform(-data.brightness, data.brightness)
        self.noise = self.draw.uniform(0, data.noise)
        self.quality = int(self.draw.integers(50, 95)) if self.draw.random() < data.compressed else 0

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """# [height, width, 3] to the same"""
        noisy = picture * np.float32(self.light)
        noisy += self.draw.standard_normal(picture.shape, np.float32) * np.float32(self.noise)
        worn: NDArray[np.uint8] = np.clip(noisy + 0.5, 0, 255).astype(np.uint8)
        if not self.quality:
            return worn
        buffer = io.BytesIO()
        Image.fromarray(worn).save(buffer, format="JPEG", quality=self.quality)
        return np.array(Image.open(buffer))
