"""Training traces: whole conversations in the engine's own format, so that training and inference feed the same tokens.

Everything the model is told comes from a protocol object (`opening_messages`, `tool_messages`, `sub_agent_prompt`,
`ask_for_answer`); what the model is to generate is written here, short and regular. Forms of a trace:

- `parallel`: thought and K calls in one turn, one tool turn with K summaries, thought and answer.
- `sequential`: one call per turn; the first turn is cut at the end of its call, as the engine cuts it (`stopped`).
- `overview`: no calls; with the protocol `direct` the bare answer.
- `perception`: a sub-agent's prompt and the correct summary.

A parallel trace begins like the sequential one of the same question, up to the end of the first call; so one model
learns both, and the dispatch mode alone decides how it continues.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from paravt_infer.answers import TimeSpan
from paravt_infer.chat import Message
from paravt_infer.protocols import ChatProtocol, ToolResult, get_protocol
from paravt_infer.times import format_time
from paravt_infer.video.types import Frame
from paravt_training.world.questions import WorldQuestion
from paravt_training.world.scene import Scene
from paravt_training.world.windows import (
    event_window,
    first_shown,
    overview_times,
    scan_windows,
    short_window,
    window_summary,
    window_times,
)

Form = Literal["parallel", "sequential", "overview", "perception"]
Syntax = Literal["tool_call", "tool_code"]
MAX_TOOL_TURNS = 3
"""Turns with calls that the engine allows: `Settings.max_tool_turns`."""
_NO_PIXELS = np.zeros((0, 0, 3), np.uint8)


@dataclass(frozen=True, kw_only=True, slots=True)
class FramePlaceholder:
    """A frame's position in a message; its pixels are drawn when they are needed."""

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
    """Whether generation was stopped at the end of this text: the token that ends the turn is then not learned."""

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
    windows: tuple[TimeSpan, ...] = ()
    """The windows called for, in order; for perception, the window that is summarised."""
    item: WorldQuestion | None = None
    """The question with its answer; None for perception."""
    budget: int = 0
    """Frames the overview may have; 0 for perception."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowPlan:
    """Which windows to look at, and why."""

    thought: str
    """The first turn's thought."""
    windows: tuple[TimeSpan, ...]
    """In the order to look at them; empty where the overview is enough."""
    sequential_thoughts: tuple[str, ...] = ()
    """The thought before each window when they are looked at one per turn."""


def plan_windows(item: WorldQuestion, budget: int) -> WindowPlan | None:
    """The windows for a question, given an overview of `budget` frames; None where none would show the answer."""
    duration = item.scene.duration
    if not item.events:
        return WindowPlan(thought=concluding_thought(item), windows=())
    if item.times:
        window_at = event_window if item.type == "span_at" else short_window
        return WindowPlan(
            thought=_plan_thought(item.times),
            windows=tuple(window_at(time, duration) for time in item.times),
            sequential_thoughts=tuple(_plan_thought([time]) for time in item.times),
        )
    if item.seen_by_overview[budget]:
        times = overview_times(duration, budget)
        shown = {event.name: first_shown(event, times) or 0.0 for event in item.events}
        found = [f"a {name} at {shown[name]:.1f} s" for name in _event_names(item)]
        thought = f"the overview shows {_join(found)}"
        if item.type == "first_of":
            return WindowPlan(thought=f"{thought}. {concluding_thought(item)}", windows=())
        window = event_window(min(shown.values()), duration)
        return WindowPlan(thought=f"{thought}. this must be seen closely.", windows=(window,))
    windows = tuple(scan_windows(duration))
    if not windows:
        return None
    return WindowPlan(
        thought="the overview does not show enough. every part must be seen closely.",
        windows=windows,
        sequential_thoughts=("the next part must be seen closely.",) * len(windows),
    )


def _plan_thought(times: Sequence[int]) -> str:
    clocks, seconds = _join(list(map(format_time, times))), _join([f"{time:.1f}" for time in times])
    return f"the time{'s' * (len(times) > 1)} {clocks} must be seen closely: {seconds} s."


def _join(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def _event_names(item: WorldQuestion) -> list[str]:
    """Names of the evidence's events, in the order of the options, else of the events."""
    names = [event.name for event in item.events]
    return [text for text in item.question.options.values() if text in names] or names


def concluding_thought(item: WorldQuestion) -> str:
    """What the evidence shows, as the thought before the answer."""
    events, times = item.events, item.times
    if item.type == "background":
        return f"the background is {item.scene.background}."
    if item.type == "first_of":
        return f"the first is a {min(events, key=lambda event: event.start).name}."
    if item.type in ("span_at", "span_of"):
        return f"a {events[0].name} from {events[0].start:.1f} to {events[0].end - 1:.1f} s."
    if item.type == "which_time":
        time = next(time for time in times if events[0].shown_at(time))
        return f"a {events[0].name} at {format_time(time)}."
    colours = item.type in ("colour_at", "colours_at", "same_colour")
    names = [event.colour if colours else f"a {event.name}" for event in events]
    return " ".join(f"at {format_time(time)} {name}." for time, name in zip(times, names, strict=True))


def answer_text(item: WorldQuestion) -> str:
    """The correct answer as the model writes it: an option by its text.

    Its letter is what a model of this size is slowest to learn; whoever reads the answer can look it up.
    """
    return item.question.options[item.answer] if item.question.options else item.answer


def _settles(item: WorldQuestion, window: TimeSpan) -> bool:
    """Whether the summary of one window makes the remaining ones unnecessary."""
    times = window_times(window)
    if item.type == "which_time":
        return first_shown(item.events[0], times) is not None
    if item.type == "first_of":
        return any(first_shown(event, times) is not None for event in item.events)
    # A span is known once it has ended before its window does.
    return item.type == "span_of" and item.events[0].start <= times[-1] and item.events[0].end < window[1]


def call_text(window: TimeSpan, syntax: Syntax = "tool_call") -> str:
    """A call for `window`, as the model writes it."""
    start, end = window
    if syntax == "tool_code":
        call = f'print(crop_video(video_path="video", start_time={start:.1f}, end_time={end:.1f}))'
        return f"<tool_code>\n{call}\n</tool_code>"
    arguments = f'{{"video_path": "video", "start_time": {start:.1f}, "end_time": {end:.1f}}}'
    return f'<tool_call>{{"name": "crop_video", "arguments": {arguments}}}</tool_call>'


def _think_block(thought: str) -> str:
    """A think block, opened as the engine's think prefix opens it."""
    return f"<think>\n{thought}\n</think>\n"


def _empty_frames(times: Sequence[float]) -> list[Frame]:
    """Frames without pixels, for a protocol to put into its messages."""
    return [Frame(time, _NO_PIXELS) for time in times]


def _trace_messages(messages: Sequence[Message]) -> list[TraceMessage]:
    return [
        TraceMessage(
            role=m.role, parts=tuple(FramePlaceholder(time=p.time) if isinstance(p, Frame) else p for p in m.parts if p)
        )
        for m in messages
    ]


def main_trace(
    item: WorldQuestion,
    form: Form,
    budget: int,
    *,
    protocol: str = "paravt",
    evidence: Literal["text", "frames"] = "text",
    syntax: Syntax = "tool_call",
) -> Trace | None:
    """The main agent's conversation about a question; None where the question does not allow this form.

    That is the case where the question's plan has no windows (or has some, for `overview` and the protocol `paravt`),
    where the overview does not show the evidence (`overview`), and where three turns of one call are too few.

    Args:
        budget: frames the overview may have, one of `BUDGETS`.
        evidence: what calls return: summaries, or the windows' frames.
        syntax: `tool_code` writes calls in the competing syntax that models fall back to.

    Raises:
        ValueError: calls in a protocol without tools.
    """
    chat = get_protocol(protocol)
    if form != "overview" and not chat.calls_tools:
        raise ValueError(f"the protocol {protocol} has no tools; its form must be overview, not {form}")
    plan = plan_windows(item, budget)
    if plan is None or (chat.calls_tools and bool(plan.windows) != (form != "overview")):
        return None
    if form == "overview" and not item.seen_by_overview[budget]:
        return None
    messages = _opening(chat, item, budget)
    final = _think_block(concluding_thought(item)) + f"<answer>{answer_text(item)}</answer>"
    called: tuple[TimeSpan, ...] = ()

    def tool_turn(windows: Sequence[TimeSpan]) -> list[TraceMessage]:
        return _trace_messages(chat.tool_messages([_tool_result(item.scene, window, evidence) for window in windows]))

    if form == "overview":
        thought = plan.thought if chat.calls_tools else concluding_thought(item)
        answer = answer_text(item)
        final = answer if protocol == "direct" else _think_block(thought) + f"<answer>{answer}</answer>"
    elif form == "parallel":
        called = plan.windows
        calls = "\n".join(call_text(window, syntax) for window in called)
        messages += [_assistant_message(_think_block(plan.thought) + calls), *tool_turn(called)]
    else:
        for number, window in enumerate(plan.windows):
            if number == MAX_TOOL_TURNS and item.type == "which_time":
                break  # three of the four times are ruled out
            if number == MAX_TOOL_TURNS:
                return None
            called += (window,)
            thought = plan.sequential_thoughts[number] if number else plan.thought
            stopped = number == 0 and len(plan.windows) > 1
            text = _think_block(thought) + call_text(window, syntax)
            messages += [_assistant_message(text, stopped=stopped), *tool_turn([window])]
            if _settles(item, window):
                break
        if len(called) == MAX_TOOL_TURNS:
            messages += _trace_messages(chat.ask_for_answer(item.question))
    return Trace(
        scene=item.scene,
        messages=(*messages, _assistant_message(final)),
        protocol=protocol,
        form=form,
        windows=called,
        item=item,
        budget=budget,
    )


def opening_trace(item: WorldQuestion, budget: int) -> Trace:
    """A question's conversation up to the main agent's first turn; nothing in it is learned."""
    return Trace(
        scene=item.scene,
        messages=tuple(_opening(get_protocol("paravt"), item, budget)),
        protocol="paravt",
        form="overview",
        item=item,
        budget=budget,
    )


def _opening(protocol: ChatProtocol, item: WorldQuestion, budget: int) -> list[TraceMessage]:
    frames = _empty_frames(overview_times(item.scene.duration, budget))
    return _trace_messages(protocol.opening_messages(item.question, frames, float(item.scene.duration)))


def _assistant_message(text: str, *, stopped: bool = False) -> TraceMessage:
    return TraceMessage(role="assistant", parts=(text,), stopped=stopped)


def _tool_result(scene: Scene, window: TimeSpan, evidence: str) -> ToolResult:
    """What the engine returns to the main agent for a window."""
    if evidence == "text":
        return ToolResult(window=window, text=window_summary(scene, window))
    frames = _empty_frames(window_times(window))
    return ToolResult(window=window, text=f"{len(frames)} frames:", frames=frames)


def perception_trace(scene: Scene, window: TimeSpan) -> Trace:
    """A sub-agent's prompt for `window` and the correct summary."""
    prompt = _trace_messages(get_protocol("paravt").sub_agent_prompt(window, _empty_frames(window_times(window))))
    messages = (*prompt, _assistant_message(window_summary(scene, window)))
    return Trace(scene=scene, messages=messages, protocol="paravt", form="perception", windows=(window,))


def random_window(scene: Scene, draw: random.Random) -> TimeSpan:
    """A window as main agents ask for it (mostly on an event), or one anywhere, 1 to 16 s long."""
    chance = draw.random()
    if chance < 0.6:
        event = draw.choice(scene.events)
        window_at = short_window if chance < 0.4 else event_window
        return window_at(draw.randint(int(event.start) + 1, int(event.end) - 1), scene.duration)
    start, length = draw.randrange(scene.duration), draw.randint(1, 16)
    if chance < 0.8:  # as in a scan
        start, length = start - start % 16, 16
    return float(start), float(min(scene.duration, start + length))


def render_messages(trace: Trace, size: tuple[int, int]) -> list[Message]:
    """The trace as the engine's messages, its frames drawn at `size` (width, height) pixels."""
    drawn: dict[float, Frame] = {}

    def render_part(part: str | FramePlaceholder) -> str | Frame:
        if isinstance(part, str):
            return part
        if part.time not in drawn:
            drawn[part.time] = Frame(part.time, trace.scene.render(part.time, size))
        return drawn[part.time]

    return [Message(role=message.role, parts=list(map(render_part, message.parts))) for message in trace.messages]
