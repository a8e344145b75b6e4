"""Training traces: whole conversations in the engine's own words, so that training and inference feed the same tokens.

Everything that is said to the model comes from a protocol object (`opening`, `feed_back`, `look`, `ask_answer`);
what the model is to say is written here, short and regular. Forms of a trace:

- `parallel`: think and K calls in one turn, one tool turn with K summaries, think and answer.
- `sequential`: one call a turn; the first turn is cut at its call's end, as the engine cuts it (`stopped`).
- `overview`: no calls; with the protocol `direct` the bare answer.
- `perception`: a sub-agent's prompt and its true summary.

A parallel trace begins like the sequential one of the same question, up to the first call's end; so one model
learns both, and the dispatch alone decides how it goes on.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from paravt_infer.chat import Message
from paravt_infer.protocols import ChatProtocol, ToolResult, get_protocol
from paravt_infer.times import format_time
from paravt_infer.video.types import Frame
from paravt_training.world.questions import WorldQuestion
from paravt_training.world.scene import Scene
from paravt_training.world.windows import Span, around, first_shown, near, overview_times, scan, summary, window_times

Form = Literal["parallel", "sequential", "overview", "perception"]
Syntax = Literal["tool_call", "tool_code"]
TOOL_TURNS = 3
"""Turns with calls that the engine allows: `Settings.max_tool_turns`."""
_NO_PIXELS = np.zeros((0, 0, 3), np.uint8)


@dataclass(frozen=True, kw_only=True, slots=True)
class FramePlaceholder:
    """A frame's place in a message; its pixels are drawn when they are needed."""

    time: float
    """Seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceMessage:
    """One message of a trace."""

    role: str
    """`system`, `user`, `tool` or `assistant`."""
    parts: tuple[str | FramePlaceholder, ...]
    """Text and frames, in the order the model sees them."""
    stopped: bool = False
    """Whether generation was stopped at this text's end: then the token that ends the turn is fed, not learned."""

    @property
    def learned(self) -> bool:
        """Whether the model is to learn to say this."""
        return self.role == "assistant"

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One conversation to learn from."""

    scene: Scene
    """What its frames show."""
    messages: tuple[TraceMessage, ...]
    """From the system prompt to the answer."""
    protocol: str
    """A name in `paravt_infer.protocols`; its `tools()` go to the chat template."""
    form: Form
    windows: tuple[Span, ...] = ()
    """The windows called for, in order; of a perception trace, the one that is looked at."""
    asked: WorldQuestion | None = None
    """The question; None for perception."""
    budget: int = 0
    """Frames the overview may have; 0 for perception."""
    tags: tuple[str, ...] = ()
    """What else it is: the question's type and kind, `frames` or `tool_code` where that is its form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowPlan:
    """What to look at, and why."""

    thought: str
    """The first turn's."""
    windows: tuple[Span, ...]
    """In the order to look at them; none where the overview is enough."""
    again: tuple[str, ...] = ()
    """What to think before each window when they are looked at one a turn."""


def plan(asked: WorldQuestion, budget: int) -> WindowPlan | None:
    """The windows for a question, given an overview of `budget` frames; None where nothing would show the answer."""
    duration = asked.scene.duration
    if not asked.events:
        return WindowPlan(thought=conclusion(asked), windows=())
    if asked.times:
        reach = around if asked.type == "span_at" else near
        again = tuple(_closely([time]) for time in asked.times)
        return WindowPlan(
            thought=_closely(asked.times), windows=tuple(reach(t, duration) for t in asked.times), again=again
        )
    if asked.seen_by_overview[budget]:
        times = overview_times(duration, budget)
        shown = {event.name: first_shown(event, times) or 0.0 for event in asked.events}
        said = "the overview shows " + _listed([f"a {name} at {shown[name]:.1f} s" for name in _in_order(asked)])
        if asked.type == "first_of":
            return WindowPlan(thought=f"{said}. {conclusion(asked)}", windows=())
        return WindowPlan(
            thought=f"{said}. this must be seen closely.", windows=(around(min(shown.values()), duration),)
        )
    spans = tuple(scan(duration))
    if not spans:
        return None
    again = ("the next part must be seen closely.",) * len(spans)
    thought = "the overview does not show enough. every part must be seen closely."
    return WindowPlan(thought=thought, windows=spans, again=again)


def _closely(times: Sequence[int]) -> str:
    clocks, seconds = _listed(list(map(format_time, times))), _listed([f"{time:.1f}" for time in times])
    return f"the time{'s' * (len(times) > 1)} {clocks} must be seen closely: {seconds} s."


def _listed(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def _in_order(asked: WorldQuestion) -> list[str]:
    """Names of the evidence's shapes, as the options list them or as they come."""
    names = [event.name for event in asked.events]
    return [text for text in asked.question.options.values() if text in names] or names


def conclusion(asked: WorldQuestion) -> str:
    """What the evidence says, as the thought before the answer."""
    events, times = asked.events, asked.times
    if asked.type == "background":
        return f"the background is {asked.scene.background}."
    if asked.type == "first_of":
        return f"the first is a {min(events, key=lambda event: event.start).name}."
    if asked.type in ("span_at", "span_of"):
        return f"a {events[0].name} from {events[0].start:.1f} to {events[0].end - 1:.1f} s."
    if asked.type == "which_time":
        time = next(time for time in times if events[0].shown_at(time))
        return f"a {events[0].name} at {format_time(time)}."
    colours = asked.type in ("colour_at", "colours_at", "same_colour")
    seen = [event.colour if colours else f"a {event.name}" for event in events]
    return " ".join(f"at {format_time(time)} {what}." for time, what in zip(times, seen, strict=True))


def answer_text(asked: WorldQuestion) -> str:
    """The right answer as it is said: an option by its words.

    The letter in front of them is what a model of this size is slowest to find; whoever reads the answer knows it.
    """
    return asked.question.options[asked.answer] if asked.question.options else asked.answer


def _enough(asked: WorldQuestion, window: Span) -> bool:
    """Whether one window's summary makes the next ones needless."""
    times = window_times(window)
    if asked.type == "which_time":
        return first_shown(asked.events[0], times) is not None
    if asked.type == "first_of":
        return any(first_shown(event, times) is not None for event in asked.events)
    # A span is known once it has ended before its window does.
    return asked.type == "span_of" and asked.events[0].start <= times[-1] and asked.events[0].end < window[1]


def call_text(window: Span, syntax: Syntax = "tool_call") -> str:
    """A call for `window`, as the model writes it."""
    start, end = window
    if syntax == "tool_code":
        call = f'print(crop_video(video_path="video", start_time={start:.1f}, end_time={end:.1f}))'
        return f"<tool_code>\n{call}\n</tool_code>"
    arguments = f'{{"video_path": "video", "start_time": {start:.1f}, "end_time": {end:.1f}}}'
    return f'<tool_call>{{"name": "crop_video", "arguments": {arguments}}}</tool_call>'


def _think(thought: str) -> str:
    """A think block; it opens as the engine's think prefix does."""
    return f"<think>\n{thought}\n</think>\n"


def _blank(times: Sequence[float]) -> list[Frame]:
    """Frames without pixels, for a protocol to put into its messages."""
    return [Frame(time, _NO_PIXELS) for time in times]


def _said(messages: Sequence[Message]) -> list[TraceMessage]:
    return [
        TraceMessage(
            role=m.role, parts=tuple(FramePlaceholder(time=p.time) if isinstance(p, Frame) else p for p in m.parts if p)
        )
        for m in messages
    ]


def main_trace(
    asked: WorldQuestion,
    form: Form,
    budget: int,
    *,
    protocol: str = "paravt",
    system_prompt: str | None = None,
    evidence: Literal["text", "frames"] = "text",
    syntax: Syntax = "tool_call",
) -> Trace | None:
    """The main agent's conversation about a question; None where it has none in this form.

    That is so where the question's plan has no windows (or has some, for `overview` and the protocol `paravt`),
    where the overview does not show the evidence (`overview`), and where three turns of one call are too few.

    Args:
        budget: frames the overview may have, one of `BUDGETS`.
        system_prompt: in place of the protocol's own.
        evidence: what calls return: summaries, or the windows' frames.
        syntax: `tool_code` writes calls in the competing form that models revert to.

    Raises:
        ValueError: calls in a protocol that has none.
    """
    how = get_protocol(protocol, system_prompt=system_prompt)
    if form != "overview" and not how.calls_tools:
        raise ValueError(f"the protocol {protocol} has no calls; its form is overview, not {form}")
    scene, planned = asked.scene, plan(asked, budget)
    if planned is None or (how.calls_tools and bool(planned.windows) != (form != "overview")):
        return None
    if form == "overview" and not asked.seen_by_overview[budget]:
        return None
    messages = _opening(how, asked, budget)
    final = _think(conclusion(asked)) + f"<answer>{answer_text(asked)}</answer>"
    called: tuple[Span, ...] = ()

    def tell(windows: Sequence[Span]) -> list[TraceMessage]:
        return _said(how.tool_messages([_told(scene, window, evidence) for window in windows]))

    if form == "overview":
        thought = planned.thought if how.calls_tools else conclusion(asked)
        said = answer_text(asked)
        final = said if protocol == "direct" else _think(thought) + f"<answer>{said}</answer>"
    elif form == "parallel":
        called = planned.windows
        calls = "\n".join(call_text(window, syntax) for window in called)
        messages += [_speech(_think(planned.thought) + calls), *tell(called)]
    else:
        for number, window in enumerate(planned.windows):
            if number == TOOL_TURNS and asked.type == "which_time":
                break  # three times are ruled out: it is the fourth
            if number == TOOL_TURNS:
                return None
            called += (window,)
            thought = planned.again[number] if number else planned.thought
            stopped = number == 0 and len(planned.windows) > 1
            messages += [_speech(_think(thought) + call_text(window, syntax), stopped=stopped), *tell([window])]
            if _enough(asked, window):
                break
        if len(called) == TOOL_TURNS:
            messages += _said(how.ask_for_answer(asked.question))
    marks = (("frames",) if evidence == "frames" else ()) + (("tool_code",) if syntax == "tool_code" else ())
    return Trace(
        scene=scene,
        messages=(*messages, _speech(final)),
        protocol=protocol,
        form=form,
        windows=called,
        asked=asked,
        budget=budget,
        tags=(asked.type, asked.question.kind, *marks),
    )


def opening_trace(asked: WorldQuestion, budget: int, *, protocol: str = "paravt") -> Trace:
    """A question's conversation up to where the main agent speaks: nothing in it is to be learned."""
    return Trace(
        scene=asked.scene,
        messages=tuple(_opening(get_protocol(protocol), asked, budget)),
        protocol=protocol,
        form="overview",
        asked=asked,
        budget=budget,
        tags=(asked.type, asked.question.kind),
    )


def _opening(protocol: ChatProtocol, asked: WorldQuestion, budget: int) -> list[TraceMessage]:
    frames = _blank(overview_times(asked.scene.duration, budget))
    return _said(protocol.opening_messages(asked.question, frames, float(asked.scene.duration)))


def _speech(text: str, *, stopped: bool = False) -> TraceMessage:
    return TraceMessage(role="assistant", parts=(text,), stopped=stopped)


def _told(scene: Scene, window: Span, evidence: str) -> ToolResult:
    """What the engine tells the main agent of a window."""
    if evidence == "text":
        return ToolResult(window=window, text=summary(scene, window))
    frames = _blank(window_times(window))
    return ToolResult(window=window, text=f"{len(frames)} frames:", frames=frames)


def perception_trace(scene: Scene, window: Span, *, protocol: str = "paravt") -> Trace:
    """A sub-agent's look at `window` and what it truly shows."""
    how: ChatProtocol = get_protocol(protocol)
    prompt = _said(how.sub_agent_prompt(window, _blank(window_times(window))))
    messages = (*prompt, _speech(summary(scene, window)))
    return Trace(scene=scene, messages=messages, protocol=protocol, form="perception", windows=(window,))


def any_window(scene: Scene, draw: random.Random) -> Span:
    """A window such as main agents ask for (most of them on an event), or one anywhere, 1 to 16 s long."""
    chance = draw.random()
    if chance < 0.6:
        event = draw.choice(scene.events)
        reach = near if chance < 0.4 else around
        return reach(draw.randint(int(event.start) + 1, int(event.end) - 1), scene.duration)
    start, length = draw.randrange(scene.duration), draw.randint(1, 16)
    if chance < 0.8:  # as in a scan
        start, length = start - start % 16, 16
    return float(start), float(min(scene.duration, start + length))


def messages_of(trace: Trace, size: tuple[int, int]) -> list[Message]:
    """The trace as the engine's messages, its frames drawn at `size` (width, height) pixels."""
    drawn: dict[float, Frame] = {}

    def part(one: str | FramePlaceholder) -> str | Frame:
        if isinstance(one, str):
            return one
        if one.time not in drawn:
            drawn[one.time] = Frame(one.time, trace.scene.picture(one.time, size))
        return drawn[one.time]

    return [Message(role=said.role, parts=[part(one) for one in said.parts]) for said in trace.messages]


def frames_of(trace: Trace, size: tuple[int, int]) -> list[Frame]:
    """The trace's frames in the order of their places, drawn at `size` (width, height) pixels."""
    return [frame for message in messages_of(trace, size) for frame in message.frames]
