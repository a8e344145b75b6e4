"""The base class of chat protocols: all prompts to the model, and the parsing of its responses."""

import hashlib
import json
import re
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from paravt_infer.answers import ExtractedAnswer, extract_answer
from paravt_infer.chat import Message
from paravt_infer.protocols.calls import parse_calls
from paravt_infer.questions import Question, Subtitle
from paravt_infer.times import format_time
from paravt_infer.tools import ParsedCall
from paravt_infer.video.types import Frame

_TAG = re.compile(r"<(/?)(tool_response|tool_call|tool_code|think|answer)>")


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What a call returns to the main agent: a sub-agent's summary, frames, or an error."""

    window: tuple[float, float] | None
    text: str
    frames: Sequence[Frame] = ()
    ok: bool = True


class ChatProtocol(ABC):
    """Default prompts and parsing; a subclass overrides what its family of models does differently."""

    name: ClassVar[str]
    calls_tools: ClassVar[bool] = False
    """Whether turns may hold tool calls, so that an episode may take several turns."""
    default_system: ClassVar[str | None] = None
    call_ends: ClassVar[tuple[str, ...]] = ()
    """Texts that end a call, where sequential dispatch stops generation."""

    def __init__(self, *, system_prompt: str | None = None):
        self.system_prompt = self.default_system if system_prompt is None else system_prompt

    # Prompts.

    def tools(self) -> list[dict[str, Any]] | None:
        """Tool schemas for the model's chat template; None if the prompt describes the tools itself."""
        return None

    def opening_messages(
        self, question: Question, frames: Sequence[Frame], duration: float, subtitles: Sequence[Subtitle] = ()
    ) -> list[Message]:
        """The start of the conversation: system prompt, overview, question."""
        system = [Message(role="system", parts=[self.system_prompt])] if self.system_prompt else []
        parts: list[str | Frame] = [
            *self.frame_parts(frames),
            self.subtitle_text(subtitles),
            self.question_text(question),
        ]
        return [*system, Message(role="user", parts=[part for part in parts if part])]

    def frame_parts(self, frames: Sequence[Frame]) -> list[str | Frame]:
        """The frames, each preceded by its time."""
        return [part for frame in frames for part in (f"<{frame.time:.1f} seconds>", frame)]

    def question_text(self, question: Question) -> str:
        """The question with its options or, for grounding, the form of the answer."""
        lines = [question.text, *(f"{letter}. {option}" for letter, option in question.options.items())]
        if question.kind == "grounding":
            lines.append("Give the time span as [start, end] in seconds.")
        return "\n".join(lines)

    def subtitle_text(self, subtitles: Sequence[Subtitle]) -> str:
        """The subtitles, one per line; empty if there are none."""
        if not subtitles:
            return ""
        lines = (f"[{format_time(line.start)} - {format_time(line.end)}] {line.text}" for line in subtitles)
        return "\nSubtitles:\n" + "\n".join(lines) + "\n"

    def tool_messages(self, results: Sequence[ToolResult]) -> list[Message]:
        """The tool turn with the results of all calls of a turn, in the order of the calls."""
        return [Message(role="tool", parts=self.result_parts(result)) for result in results]

    def result_parts(self, result: ToolResult) -> list[str | Frame]:
        """One call's result. Tags in a sub-agent's text are escaped, so that it cannot close those around it."""
        span = f"[{result.window[0]:.1f} s - {result.window[1]:.1f} s] " if result.window else ""
        kind = "" if result.ok else "Error: "
        return [span + kind + _TAG.sub(r"(\1\2)", result.text), *self.frame_parts(result.frames)]

    def ask_for_answer(self, question: Question) -> list[Message]:
        """The turn that asks for the answer when no more calls may be made."""
        text = "No more tool calls are possible. Answer now, inside <answer>...</answer>."
        return [Message(role="user", parts=[text])]

    def sub_agent_prompt(
        self,
        window: tuple[float, float],
        frames: Sequence[Frame],
        subtitles: Sequence[Subtitle] = (),
        question: Question | None = None,
    ) -> list[Message]:
        """The whole prompt of a sub-agent: its window's frames, and its task."""
        start, end = window
        task = (
            f"\nThese frames show one window of a longer video, from {format_time(start)} to {format_time(end)} "
            f"({end - start:.1f} seconds). Report what can be seen, with times: people, objects, actions, text, "
            "changes. State only what the frames show, briefly."
        )
        if question is not None:
            task += f"\nIt should help to answer this question:\n{self.question_text(question)}"
        return [Message(role="user", parts=[*self.frame_parts(frames), self.subtitle_text(subtitles), task])]

    # Parsing.

    def parse_calls(self, response: str) -> list[ParsedCall]:
        """The calls in a main turn's response."""
        return parse_calls(response) if self.calls_tools else []

    def extract_answer(self, response: str, question: Question) -> ExtractedAnswer | None:
        """The answer in a response; None if there is none, so that the model has to be asked for it."""
        return extract_answer(response)

    def summary(self, text: str) -> str:
        """A sub-agent's response without its reasoning."""
        _, closed, after = text.rpartition("</think>")
        return (after if closed else text.removeprefix("<think>")).strip()

    def checksum(self) -> str:
        """SHA-256 of all prompts that the protocol makes for a fixed example: it changes whenever a word does."""
        question = Question(video="v", text="Q?", options={"A": "a", "B": "b"})
        line = Subtitle(start=1, end=2, text="s")
        span, frames = (1.0, 5.0), [Frame(1.5, np.zeros((1, 1, 3), np.uint8))]
        results = [ToolResult(window=span, text="t", frames=frames), ToolResult(window=None, text="e", ok=False)]
        messages = [
            *self.opening_messages(question, frames, 60.0, [line]),
            *self.opening_messages(question.model_copy(update={"kind": "grounding", "options": {}}), [], 60.0),
            *self.tool_messages(results),
            *self.ask_for_answer(question),
            *self.sub_agent_prompt(span, frames, [line]),
            *self.sub_agent_prompt(span, [], question=question),
        ]
        content = [(message.role, message.text) for message in messages]
        text = json.dumps([self.name, self.tools(), self.call_ends, content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
