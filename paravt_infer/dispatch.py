"""How a turn's calls run: each checked, all at once (or one a turn), every failure an error response."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from paravt_infer.backends.base import Backend, Generation, Request, SamplingParams, derive_seed
from paravt_infer.errors import BackendError, ModelError, VideoError
from paravt_infer.protocols import ChatProtocol, ToolResult
from paravt_infer.questions import Question, Subtitle, subtitles_at
from paravt_infer.rollout import Evidence, FrameRef, GenerationRecord
from paravt_infer.settings import Settings
from paravt_infer.tools import TOOLS, ParsedCall, ToolCallError, ToolCallFault, Window
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_infer.video.source import FrameSource
from paravt_infer.video.types import Frame

CUT = " [cut]"
"""Ends a summary that met its token limit."""


@dataclass(kw_only=True)
class EpisodeContext:
    """What the calls of one episode share."""

    episode: str
    began: float
    """`time.monotonic()` at the episode's start."""
    question: Question
    subtitles: Sequence[Subtitle]
    duration: float
    settings: Settings
    protocol: ChatProtocol
    backend: Backend
    frame_source: FrameSource
    sizing: FrameSizing
    changed: Callable[[], None]
    """Called whenever a call's record has changed."""

    def now(self) -> float:
        return time.monotonic() - self.began


def frame_refs(frames: Sequence[Frame], sizing: FrameSizing) -> list[FrameRef]:
    return [
        FrameRef(
            time=f.time,
            width=f.width,
            height=f.height,
            tokens=sizing.tokens(f.width, f.height),
            digest=f.digest,
        )
        for f in frames
    ]


async def run_calls(
    scene: EpisodeContext, turn: int, parsed: Sequence[ParsedCall], evidence: list[Evidence]
) -> list[ToolResult]:
    """Run a turn's calls and return what each of them tells the main agent, in their order.

    Appends a record of each call to `evidence` at once and fills it as the call proceeds. Calls beyond the
    limit, faulty calls and windows already looked at are answered with an error; none of them stops the others.
    """
    first = len(evidence)
    windows: dict[int, Window] = {}
    for position, call in enumerate(parsed):
        tool = TOOLS.get(call.name)
        asked = tool.asked(call) if tool else None
        record = Evidence(
            turn=turn,
            tool=call.name,
            raw=call.raw,
            syntax=call.syntax,
            repairs=[repair.value for repair in call.repairs],
            asked=list(asked) if asked else None,
            started=scene.now(),
        )
        try:
            window = windows[position] = _checked(scene, call, position, evidence)
            record.used, record.clamped = [window.start, window.end], window.clamped
        except ToolCallError as fault:
            _fail(record, fault)
        evidence.append(record)
    scene.changed()

    records = evidence[first:]
    # Decoding of all windows starts at once, each in a worker of its own.
    decodes = {number: asyncio.create_task(_decode(scene, window)) for number, window in windows.items()}
    runs = [
        _run(scene, records[number], _examine(scene, records[number], window, decodes, number))
        for number, window in windows.items()
    ]
    try:
        await asyncio.gather(*runs)
    finally:
        for task in decodes.values():
            task.cancel()
    return [
        ToolResult(
            window=(record.used[0], record.used[1]) if record.used else None,
            text=record.text,
            frames=decodes[number].result() if record.status == "ok" and scene.settings.evidence == "frames" else (),
            ok=record.status == "ok",
        )
        for number, record in enumerate(records)
    ]


def _checked(scene: EpisodeContext, call: ParsedCall, position: int, evidence: Sequence[Evidence]) -> Window:
    """The window to look at. Raises ToolCallError where the call cannot or need not run."""
    settings = scene.settings
    limit = 1 if settings.dispatch == "sequential" else settings.max_calls
    if position >= limit:
        raise ToolCallError(
            ToolCallFault.TOO_MANY_CALLS, f"a turn may hold {limit} calls and this is one more; ask again for it"
        )
    if call.fault is not None:
        raise ToolCallError(call.fault, call.message)
    if call.repairs and not settings.repair:
        raise ToolCallError(
            call.repairs[0],
            "the call is not in its exact form; write the JSON object alone in a closed block",
        )
    if call.syntax == "tool_code" and settings.tool_code == "refuse":
        raise ToolCallError(
            ToolCallFault.TOOL_CODE_REFUSED, "<tool_code> is not understood; write a <tool_call> block with JSON"
        )
    if call.name not in TOOLS:
        raise ToolCallError(
            ToolCallFault.UNKNOWN_TOOL, f"there is no tool {call.name[:60]!r}; there is {', '.join(TOOLS)}"
        )
    window = TOOLS[call.name].window(call, scene.duration)
    for number, earlier in enumerate(evidence):
        if earlier.used == [window.start, window.end] and earlier.status != "error":
            raise ToolCallError(
                ToolCallFault.DUPLICATE_WINDOW,
                f"{window.start:.1f} to {window.end:.1f} s is looked at already, by call {number + 1}; "
                "use what that returned, or ask for another window",
            )
    return window


def _fail(record: Evidence, fault: ToolCallError) -> None:
    record.status, record.fault, record.text = "error", fault.fault.value, str(fault)


async def _decode(scene: EpisodeContext, window: Window) -> list[Frame]:
    settings = scene.settings
    times = sample_times(window.start, window.end, fps=settings.fps, limit=settings.window_frames)
    return await scene.frame_source.frames(scene.question.video, times, scene.sizing)


async def _run(scene: EpisodeContext, record: Evidence, examine: Coroutine[Any, Any, None]) -> None:
    """One call, from decoding to evidence. Never raises but when cancelled: what goes wrong is an error response."""
    record.started = scene.now()
    record.status = "decoding"
    scene.changed()
    try:
        await asyncio.wait_for(examine, scene.settings.call_seconds)
    except ToolCallError as fault:
        _fail(record, fault)
    except TimeoutError:
        late = f"no evidence within {scene.settings.call_seconds:g} s; use the other evidence or ask again"
        _fail(record, ToolCallError(ToolCallFault.SUB_AGENT_LATE, late))
    finally:
        record.seconds = scene.now() - record.started
        scene.changed()


async def _examine(
    scene: EpisodeContext,
    record: Evidence,
    window: Window,
    decodes: "dict[int, asyncio.Task[list[Frame]]]",
    number: int,
) -> None:
    """Look at the window of the turn's call `number`. Raises CallFault."""
    try:
        if scene.backend.batches_requests:
            await asyncio.wait(decodes.values())  # sub-agents that are sent together run together
        frames = await asyncio.shield(decodes[number])
    except VideoError as error:
        raise ToolCallError(ToolCallFault.DECODE_FAILED, f"the window cannot be decoded: {error}") from None
    finally:
        record.decode_seconds = scene.now() - record.started
    record.frames = frame_refs(frames, scene.sizing)
    if scene.settings.evidence == "frames":
        record.text = f"{len(frames)} frames:"
    else:
        record.status = "looking"
        scene.changed()
        await _summarise(scene, record, window, frames, number)
    record.status = "ok"


async def _summarise(scene: EpisodeContext, record: Evidence, window: Window, frames: list[Frame], number: int) -> None:
    """A sub-agent looks at the window's frames and says what it sees."""
    settings, backend = scene.settings, scene.backend
    messages = scene.protocol.sub_agent_prompt(
        window.span,
        frames,
        subtitles_at(scene.subtitles, [frame.time for frame in frames]),
        scene.question if settings.question_in_subagent else None,
    )
    record.sub_agent = generated = GenerationRecord(
        request_id=f"{scene.episode}-{record.turn}-{number}", started=scene.now()
    )
    try:
        generated.fed_ids = backend.chat.encode_start(messages) if backend.chat else []
        request = Request(
            id=generated.request_id,
            ids=generated.fed_ids,
            messages=messages,
            frames=frames,
            sampling=SamplingParams(
                max_new_tokens=settings.summary_tokens,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                seed=derive_seed(settings.seed, "sub", record.turn, number),
                logprobs=settings.logprobs,
            ),
        )
        generation = await backend.generate(request)
    except (BackendError, ModelError) as error:
        raise ToolCallError(ToolCallFault.SUB_AGENT_FAILED, f"the sub-agent failed: {error}") from None
    finally:
        generated.seconds = scene.now() - generated.started
    record_generation(generated, generation)
    record.text = scene.protocol.summary(generation.text)
    if not record.text:
        raise ToolCallError(ToolCallFault.EMPTY_SUMMARY, "the sub-agent said nothing; ask for another window")
    if generation.finish == "length":
        record.cut, record.text = True, record.text + CUT


def record_generation(record: GenerationRecord, generation: Generation) -> None:
    """Write what a backend returned into a record."""
    record.output_ids, record.text, record.logprobs = generation.ids, generation.text, generation.logprobs
    record.finish, record.attempts, record.server = generation.finish, generation.attempts, generation.server
    record.prompt_tokens, record.visual_tokens = generation.prompt_tokens, generation.visual_tokens
    record.cached_tokens, record.weight_version = generation.cached_tokens, generation.weight_version
