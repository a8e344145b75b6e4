"""Runs the tool calls of a turn concurrently: each is validated, and every failure becomes an error response."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from paravt_infer.backends.base import Backend, Generation, Request, SamplingParams, derive_seed
from paravt_infer.errors import BackendError, ModelError, VideoError
from paravt_infer.protocols import ChatProtocol, ToolResult
from paravt_infer.questions import Question, Subtitle, subtitles_at
from paravt_infer.rollout import Evidence, FrameRef, GenerationRecord, Rollout
from paravt_infer.settings import Settings
from paravt_infer.tools import TOOLS, ParsedCall, ToolCallError, ToolCallFault, Window
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_infer.video.source import FrameSource
from paravt_infer.video.types import Frame

TRUNCATION_MARK = " [cut]"
"""Appended to a summary that reached its token limit."""


@dataclass(kw_only=True)
class EpisodeContext:
    """What the turns and calls of one episode share."""

    rollout: Rollout
    """The record, filled in as the episode proceeds."""
    protocol: ChatProtocol
    backend: Backend
    frame_source: FrameSource
    on_change: Callable[[Rollout], None]
    """Called with the record after every change."""
    began: float = field(default_factory=time.monotonic)
    duration: float = 0.0
    """Seconds of video; known, like its subtitles, once it is open."""
    subtitles: Sequence[Subtitle] = ()

    @property
    def settings(self) -> Settings:
        return self.rollout.settings

    @property
    def question(self) -> Question:
        return self.rollout.question

    @cached_property
    def sizing(self) -> FrameSizing:
        return self.backend.frame_sizing(self.settings.min_pixels, self.settings.max_pixels)

    def now(self) -> float:
        """Seconds since the episode's start."""
        return time.monotonic() - self.began

    def changed(self) -> None:
        self.on_change(self.rollout)


def sampling_params(settings: Settings, seed_path: tuple[object, ...], **params: Any) -> SamplingParams:
    """The sampling parameters of one request; `seed_path` names it within the episode."""
    return SamplingParams(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        seed=derive_seed(settings.seed, *seed_path),
        logprobs=settings.logprobs,
        **params,
    )


def frame_refs(frames: Sequence[Frame], sizing: FrameSizing) -> list[FrameRef]:
    """The frames as the record keeps them."""

    def ref(frame: Frame) -> FrameRef:
        width, height = frame.width, frame.height
        tokens = sizing.tokens(width, height)
        return FrameRef(time=frame.time, width=width, height=height, tokens=tokens, digest=frame.digest)

    return [ref(frame) for frame in frames]


async def run_calls(context: EpisodeContext, calls: Sequence[ParsedCall]) -> list[ToolResult]:
    """Run the calls of the last turn and return their results for the main agent, in the order of the calls.

    A record of each call is appended to the rollout's evidence immediately and filled in as the call proceeds. Calls
    over the limit, faulty calls and duplicate windows get an error response; none of them stops the others.
    """
    evidence, turn = context.rollout.evidence, len(context.rollout.turns) - 1
    first = len(evidence)
    windows: dict[int, Window] = {}
    for position, call in enumerate(calls):
        tool = TOOLS.get(call.name)
        requested = tool.requested_times(call) if tool else None
        record = Evidence(
            turn=turn,
            tool=call.name,
            raw=call.raw,
            syntax=call.syntax,
            repairs=[repair.value for repair in call.repairs],
            asked=list(requested) if requested else None,
            started=context.now(),
        )
        try:
            window = windows[position] = _validate_window(context, call, position)
            record.used, record.clamped = [window.start, window.end], window.clamped
        except ToolCallError as fault:
            _fail(record, fault)
        evidence.append(record)
    context.changed()

    records = evidence[first:]
    # All windows are decoded at the same time, each by its own worker.
    decodes = {number: asyncio.create_task(_decode(context, window)) for number, window in windows.items()}
    runs = (_run_call(context, records[number], window, decodes, number) for number, window in windows.items())
    try:
        await asyncio.gather(*runs)
    finally:
        for task in decodes.values():
            task.cancel()
    return [
        ToolResult(
            window=(record.used[0], record.used[1]) if record.used else None,
            text=record.text,
            frames=decodes[number].result() if record.status == "ok" and context.settings.evidence == "frames" else (),
            ok=record.status == "ok",
        )
        for number, record in enumerate(records)
    ]


def _validate_window(context: EpisodeContext, call: ParsedCall, position: int) -> Window:
    """The window of the turn's call number `position`. Raises ToolCallError where the call must not run."""
    settings = context.settings
    limit = 1 if settings.dispatch == "sequential" else settings.max_calls
    if position >= limit:
        message = f"a turn may hold {limit} calls and this is one more; ask again for it"
        raise ToolCallError(ToolCallFault.TOO_MANY_CALLS, message)
    if call.fault is not None:
        raise ToolCallError(call.fault, call.message)
    if call.repairs and not settings.repair:
        message = "the call is not in its exact form; write the JSON object alone in a closed block"
        raise ToolCallError(call.repairs[0], message)
    if call.syntax == "tool_code" and settings.tool_code == "refuse":
        message = "<tool_code> is not understood; write a <tool_call> block with JSON"
        raise ToolCallError(ToolCallFault.TOOL_CODE_REFUSED, message)
    if call.name not in TOOLS:
        message = f"there is no tool {call.name[:60]!r}; there is {', '.join(TOOLS)}"
        raise ToolCallError(ToolCallFault.UNKNOWN_TOOL, message)
    window = TOOLS[call.name].parse_window(call, context.duration)
    for number, earlier in enumerate(context.rollout.evidence):
        if earlier.used == [window.start, window.end] and earlier.status != "error":
            message = (
                f"{window.start:.1f} to {window.end:.1f} s is looked at already, by call {number + 1}; "
                "use what that returned, or ask for another window"
            )
            raise ToolCallError(ToolCallFault.DUPLICATE_WINDOW, message)
    return window


def _fail(record: Evidence, fault: ToolCallError) -> None:
    record.status, record.fault, record.text = "error", fault.fault.value, str(fault)


async def _decode(context: EpisodeContext, window: Window) -> list[Frame]:
    settings = context.settings
    times = sample_times(window.start, window.end, fps=settings.fps, limit=settings.window_frames)
    return await context.frame_source.frames(context.question.video, times, context.sizing)


async def _run_call(
    context: EpisodeContext,
    record: Evidence,
    window: Window,
    decodes: Mapping[int, asyncio.Task[list[Frame]]],
    number: int,
) -> None:
    """Run the turn's call `number`, from decoding to evidence. Failures are recorded; only cancellation is raised."""
    record.started, record.status = context.now(), "decoding"
    context.changed()
    seconds = context.settings.call_seconds
    try:
        async with asyncio.timeout(seconds):
            try:
                if context.backend.batches_requests:
                    await asyncio.wait(decodes.values())  # requests sent at the same time share a batch
                frames = await asyncio.shield(decodes[number])
            finally:
                record.decode_seconds = context.now() - record.started
            record.frames = frame_refs(frames, context.sizing)
            if context.settings.evidence == "frames":
                record.text = f"{len(frames)} frames:"
            else:
                record.status = "looking"
                context.changed()
                await _ask_sub_agent(context, record, window, frames, number)
        record.status = "ok"
    except VideoError as error:
        _fail(record, ToolCallError(ToolCallFault.DECODE_FAILED, f"the window cannot be decoded: {error}"))
    except ToolCallError as error:
        _fail(record, error)
    except TimeoutError:
        late = f"no evidence within {seconds:g} s; use the other evidence or ask again"
        _fail(record, ToolCallError(ToolCallFault.SUB_AGENT_LATE, late))
    finally:
        record.seconds = context.now() - record.started
        context.changed()


async def _ask_sub_agent(
    context: EpisodeContext, record: Evidence, window: Window, frames: list[Frame], number: int
) -> None:
    """Have a sub-agent look at the window's frames and summarise them. Raises ToolCallError."""
    settings, backend = context.settings, context.backend
    messages = context.protocol.sub_agent_prompt(
        window.span,
        frames,
        subtitles_at(context.subtitles, [frame.time for frame in frames]),
        context.question if settings.question_in_subagent else None,
    )
    record.sub_agent = generated = GenerationRecord(
        request_id=f"{context.rollout.id}-{record.turn}-{number}", started=context.now()
    )
    try:
        generated.fed_ids = backend.chat.encode_start(messages) if backend.chat else []
        request = Request(
            id=generated.request_id,
            ids=generated.fed_ids,
            messages=messages,
            frames=frames,
            sampling=sampling_params(settings, ("sub", record.turn, number), max_new_tokens=settings.summary_tokens),
        )
        generation = await backend.generate(request)
    except (BackendError, ModelError) as error:
        raise ToolCallError(ToolCallFault.SUB_AGENT_FAILED, f"the sub-agent failed: {error}") from None
    finally:
        generated.seconds = context.now() - generated.started
    record_generation(generated, generation)
    record.text = context.protocol.summary(generation.text)
    if not record.text:
        raise ToolCallError(ToolCallFault.EMPTY_SUMMARY, "the sub-agent said nothing; ask for another window")
    if generation.finish == "length":
        record.cut, record.text = True, record.text + TRUNCATION_MARK


def record_generation(record: GenerationRecord, generation: Generation) -> None:
    """Copy what a backend returned into a record."""
    record.output_ids, record.text, record.logprobs = generation.ids, generation.text, generation.logprobs
    record.finish, record.attempts, record.server = generation.finish, generation.attempts, generation.server
    record.prompt_tokens, record.visual_tokens = generation.prompt_tokens, generation.visual_tokens
    record.cached_tokens, record.weight_version = generation.cached_tokens, generation.weight_version
