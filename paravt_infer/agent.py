"""The episode loop: overview, turns, calls, answer. Asking, evaluation, A/B and training all run this one."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from paravt_infer.answers import ExtractedAnswer, extract_answer, extract_choice
from paravt_infer.backends.base import Backend, Request
from paravt_infer.budget import fill_usage
from paravt_infer.chat import Message
from paravt_infer.dispatch import EpisodeContext, frame_refs, record_generation, run_calls, sampling_params
from paravt_infer.errors import ParavtError
from paravt_infer.protocols.calls import has_forged_response
from paravt_infer.questions import read_subtitles, subtitles_at
from paravt_infer.rollout import Rollout, Turn, VideoRecord
from paravt_infer.video.sampling import sample_times
from paravt_infer.video.types import Frame

THINK_PREFIX = "<think>\n"


class MainContext:
    """The main agent's context: a growing list of token ids for token-exact backends, and the same as messages."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.ids: list[int] = []
        self.frames: list[Frame] = []
        self.messages: list[Message] = []
        self._last_output: list[int] = []

    def feed(self, messages: Sequence[Message], *, tools: list[dict[str, Any]] | None, prefix: str) -> list[int]:
        """Add messages and open the next turn; returns the ids this adds."""
        chat, fed = self.backend.chat, []
        if chat is not None:
            if self.ids:
                fed = chat.encode_continuation(self._last_output, messages)
            else:
                fed = chat.encode_start(messages, tools=tools)
            fed += chat.encode_text(prefix) if prefix else []
        self.ids += fed
        self.messages += messages
        self.frames += [frame for message in messages for frame in message.frames]
        return fed

    def add_output(self, turn: Turn, calls: list[dict[str, Any]]) -> None:
        """Add the main agent's output, with its token ids as generated."""
        self.ids += turn.output_ids
        self._last_output = turn.output_ids
        self.messages.append(Message(role="assistant", parts=[turn.response], calls=calls))


class Episode:
    """One question being answered. `Engine.ask` creates it and runs it once."""

    def __init__(self, context: EpisodeContext):
        self.context, self.rollout = context, context.rollout
        self.main_context = MainContext(context.backend)

    async def run(self) -> Rollout:
        """Run the episode. Its failures are recorded; only cancellation is raised."""
        context, rollout = self.context, self.rollout
        try:
            await self._answer(await self._open())
            rollout.status = "answered" if rollout.answer is not None else "no_answer"
        except asyncio.CancelledError:
            rollout.status = "cancelled"
            raise
        except ParavtError as error:
            rollout.status, rollout.error = "failed", str(error)
        finally:
            rollout.backend.notes = context.backend.notes()
            fill_usage(rollout, seconds=context.now())
            context.changed()
        return rollout

    async def _open(self) -> list[Message]:
        """Probe the video, decode the overview, and build the opening messages."""
        context, rollout = self.context, self.rollout
        question, settings, source = context.question, context.settings, context.frame_source
        context.subtitles = read_subtitles(question.subtitles) if question.subtitles else []
        info = await source.probe(question.video)
        context.duration = info.duration
        rollout.video = VideoRecord(**{name: getattr(info, name) for name in VideoRecord.model_fields})
        context.changed()
        times = sample_times(0, info.duration, fps=settings.fps, limit=settings.frames)
        frames = await source.frames(question.video, times, context.sizing)
        rollout.overview = frame_refs(frames, context.sizing)
        rollout.overview_seconds = context.now()
        context.changed()
        shown = subtitles_at(context.subtitles, [frame.time for frame in frames])
        return context.protocol.opening_messages(question, frames, info.duration, shown)

    async def _answer(self, messages: list[Message]) -> None:
        """Take turns until there is an answer, or until the turn that was asked for one is over."""
        rollout, question, settings = self.rollout, self.context.question, self.context.settings
        protocol = self.context.protocol
        may_call = protocol.calls_tools and settings.max_tool_turns > 0
        tool_turns = 0
        while True:
            turn = await self._turn(messages, "main" if may_call else "final")
            calls = protocol.parse_calls(turn.response) if may_call else []
            turn.forged_response = has_forged_response(turn.response)
            if not calls:
                answer = protocol.extract_answer(turn.response, question)
                if answer is not None or not may_call:
                    self._record_answer(answer or extract_answer(turn.response))
                    return
                # Neither a call nor an answer: take one more turn, which asks for the answer.
                may_call, messages = False, protocol.ask_for_answer(question)
                continue
            first = len(rollout.evidence)
            turn.calls = list(range(first, first + len(calls)))
            messages = protocol.tool_messages(await run_calls(self.context, calls))
            tool_turns += 1
            if tool_turns == settings.max_tool_turns:
                may_call = False
                messages = [*messages, *protocol.ask_for_answer(question)]

    async def _turn(self, messages: Sequence[Message], kind: Literal["main", "final"]) -> Turn:
        """Feed `messages` and generate one main turn."""
        context, rollout, main_context = self.context, self.rollout, self.main_context
        settings, protocol = context.settings, context.protocol
        number = len(rollout.turns)
        prefixed = settings.think_prefix == "every" or (settings.think_prefix == "first" and number == 0)
        prefix = THINK_PREFIX if prefixed else ""
        turn = Turn(kind=kind, prefix=prefix, started=context.now(), request_id=f"{rollout.id}-{number}")
        rollout.turns.append(turn)
        turn.fed_ids = main_context.feed(messages, tools=protocol.tools(), prefix=prefix)
        context.changed()
        stops = protocol.call_ends if settings.dispatch == "sequential" and kind == "main" else ()
        request = Request(
            id=turn.request_id,
            ids=list(main_context.ids),
            messages=list(main_context.messages),
            tools=protocol.tools(),
            frames=list(main_context.frames),
            sampling=sampling_params(
                settings,
                ("main", number),
                max_new_tokens=settings.max_new_tokens,
                stop=stops,
                regex=settings.turn_regex[number] if number < len(settings.turn_regex) else None,
            ),
            affinity=rollout.id,
        )
        try:
            generation = await context.backend.generate(request)
        finally:
            turn.seconds = context.now() - turn.started
        record_generation(turn, generation)
        main_context.add_output(turn, generation.calls)
        context.changed()
        return turn

    def _record_answer(self, answer: ExtractedAnswer | None) -> None:
        """Write the answer into the record, as a letter where there are options."""
        if answer is None:
            return
        rollout, options = self.rollout, self.context.question.options
        rollout.answer_text, rollout.answer_source = answer.text, answer.source
        rollout.answer = extract_choice(answer.text, options) if options else answer.text
