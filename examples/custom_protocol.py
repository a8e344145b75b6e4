"""Add a protocol: every word said to one family of models, and how its replies are read.

This one gives the time of each frame as MM:SS and wants the answer as the last line, `Answer: B`.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import ClassVar

from paravt_infer import EngineSpec, Question, Settings
from paravt_infer.answers import ExtractedAnswer, extract_answer
from paravt_infer.bundled import sample_videos
from paravt_infer.protocols import PROTOCOLS, ChatProtocol
from paravt_infer.times import format_time
from paravt_infer.video.types import Frame


class LastLineProtocol(ChatProtocol):
    """One turn without tools. `calls_tools` and `parse_calls` are what a protocol with tools adds."""

    name = "last_line"
    default_system: ClassVar[str | None] = "Describe the video, then end with one line: Answer: LETTER."

    def frame_parts(self, frames: Sequence[Frame]) -> list[str | Frame]:
        return [part for frame in frames for part in (f"[{format_time(frame.time)}]", frame)]

    def extract_answer(self, response: str, question: Question) -> ExtractedAnswer | None:
        answers = re.findall(r"^Answer: *(.+)$", response, re.MULTILINE)
        if answers:
            return ExtractedAnswer(text=answers[-1].strip(), source="last_line")
        return extract_answer(response)  # the rule that all protocols share


async def main() -> None:
    PROTOCOLS[LastLineProtocol.name] = LastLineProtocol
    sample = sample_videos()[0]
    # The checkpoint that ships does not know this format, so its reply is held to it (and the answer is a guess).
    settings = Settings(protocol="last_line", frames=8, turn_regex=(r"A video\.\nAnswer: [A-D]",))
    async with EngineSpec().open(settings) as engine:
        rollout = await engine.ask(sample.path, sample.question, options=sample.options)
    print(rollout.turns[-1].response)
    print(f"answer: {rollout.answer}, read from: {rollout.answer_source}")
    # The record names the protocol and a checksum of its words: changed words never reuse an old answer.
    assert rollout.protocol is not None
    print(f"protocol: {rollout.protocol.name} {rollout.protocol.checksum[:12]}")


if __name__ == "__main__":
    asyncio.run(main())
