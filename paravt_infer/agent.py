"""The episode loop, the one that ask, evaluation, A/B and training all run: overview, turns, calls, answer."""

import asyncio
import platform
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import paravt_infer
from paravt_infer.answers import ExtractedAnswer, extract_answer, extract_choice
from paravt_infer.backends.base import Backend, Request, SamplingParams, derive_seed
from paravt_infer.budget import fill_usage
from paravt_infer.chat import Message
from paravt_infer.dispatch import EpisodeContext, frame_refs, record_generation, run_calls
from paravt_infer.errors import ParavtError, SettingsError
from paravt_infer.model import folder_fingerprint
from paravt_infer.protocols import ChatProtocol, get_protocol
from paravt_infer.protocols.calls import has_forged_response
from paravt_infer.questions import Question, Subtitle, read_subtitles, subtitles_at
from paravt_infer.rollout import BackendRecord, ProtocolRecord, Rollout, Turn, VideoRecord
from paravt_infer.settings import Settings
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import sample_times
from paravt_infer.video.store import VideoStore
from paravt_infer.video.types import Frame

THINK = "<think>\n"
OnChange = Callable[[Rollout], None]


class Engine:
    """Answers questions about videos. Start and stop it with ``async with``.

    Args:
        backend: what generates; started and closed with the engine.
        settings: how episodes are run unless a call says otherwise.
        store: where frames come from; one of its own by default, closed with the engine.

    Example::

        async with Engine(backend, Settings(frames=32)) as engine:
            rollout = await engine.ask("film.mp4", "Which came first?", options=["the dog", "the cat"])
            async for rollout in engine.ask_many(questions, concurrency=16):
                print(rollout.question.id, rollout.answer)
    """

    def __init__(self, backend: Backend, settings: Settings | None = None, *, store: VideoStore | None = None):
        self.backend = backend
        self.settings = settings or Settings()
        self.store = store or VideoStore(DecodePool())
        self._versions: dict[str, str] = {}
        self._fingerprint = ""

    async def __aenter__(self) -> "Engine":
        try:
            await self.backend.start()
        except BaseException:
            await self.close()
            raise
        self._versions = _versions() | self.backend.versions()
        self._fingerprint = folder_fingerprint(self.backend.model)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        try:
            await self.backend.close()
        finally:
            await self.store.close()

    async def ask(
        self,
        video: str | Question,
        text: str = "",
        *,
        options: Mapping[str, str] | Sequence[str] = (),
        subtitles: str | None = None,
        settings: Settings | None = None,
        on_change: OnChange | None = None,
    ) -> Rollout:
        """Answer one question and return its record.

        What fails in the episode (the video, the backend) is in the record, as `status` and `error`.

        Args:
            video: path of the video, or a whole `Question`.
            text: the question.
            options: letter to text, or texts, for multiple choice.
            on_change: called with the growing record whenever something has happened.

        Raises:
            SettingsError: the question or the settings make no sense.
        """
        if isinstance(video, Question):
            question = video
        else:
            question = Question.make(video=video, text=text, options=options, subtitles=subtitles)
        return await self._episode(question, settings or self.settings, on_change or (lambda rollout: None)).run()

    async def ask_many(
        self,
        questions: Iterable[Question],
        *,
        concurrency: int = 8,
        ordered: bool = False,
        settings: Settings | None = None,
    ) -> AsyncGenerator[Rollout, None]:
        """Answer many questions, `concurrency` at a time; records come as they finish, or in order if asked.

        Questions are taken from the iterable as places fall free. Closing the iterator cancels what is under way.
        """
        if concurrency < 1:
            raise SettingsError(f"concurrency must be at least 1, not {concurrency}")
        source = enumerate(questions)
        running: dict[int, asyncio.Task[Rollout]] = {}
        finished: asyncio.Queue[int] = asyncio.Queue()
        waiting: set[int] = set()

        def refill() -> None:
            while len(running) - len(waiting) < concurrency:
                number, question = next(source, (-1, None))
                if question is None:
                    return
                task = asyncio.create_task(self.ask(question, settings=settings), name=str(number))
                task.add_done_callback(lambda done: finished.put_nowait(int(done.get_name())))
                running[number] = task

        try:
            refill()
            due = 0  # the number of the next record, where they are wanted in order
            while running:
                waiting.add(await finished.get())
                refill()
                while ready := waiting & ({due} if ordered else waiting):
                    number = ready.pop()
                    waiting.remove(number)
                    due += 1
                    yield running.pop(number).result()
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    def _episode(self, question: Question, settings: Settings, on_change: OnChange) -> "_Episode":
        protocol = get_protocol(settings.protocol, system_prompt=settings.system_prompt)
        if settings.think_prefix != "off" and not self.backend.exact_tokens:
            raise SettingsError("setting think_prefix: needs a token-exact backend (sglang or transformers)")
        return _Episode(self, question, settings, protocol, on_change)


class _Conversation:
    """The main agent's context: a growing list of ids for token-exact backends, and the messages beside it."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.ids: list[int] = []
        self.frames: list[Frame] = []
        self.messages: list[Message] = []
        self._last_output: list[int] = []

    def feed(self, messages: Sequence[Message], *, tools: list[dict[str, Any]] | None, prefix: str) -> list[int]:
        """Add messages and open the next turn; returns the ids that this feeds."""
        chat, fed = self.backend.chat, []
        if chat is not None:
            fed = (
                chat.encode_continuation(self._last_output, messages)
                if self.ids
                else chat.encode_start(messages, tools=tools)
            )
            fed += chat.encode_text(prefix) if prefix else []
        self.ids += fed
        self.messages += messages
        self.frames += [frame for message in messages for frame in message.frames]
        return fed

    def hear(self, turn: Turn, calls: list[dict[str, Any]]) -> None:
        """Add what the main agent generated, as it was generated."""
        self.ids += turn.output_ids
        self._last_output = turn.output_ids
        self.messages.append(Message(role="assistant", parts=[turn.response], calls=calls))


class _Episode:
    """One question being answered."""

    def __init__(
        self, engine: Engine, question: Question, settings: Settings, protocol: ChatProtocol, on_change: OnChange
    ):
        self.engine, self.backend = engine, engine.backend
        self.question, self.settings, self.protocol = question, settings, protocol
        self.began = time.monotonic()
        self.rollout = Rollout(
            id=uuid.uuid4().hex[:12],
            question=question,
            settings=settings,
            protocol=ProtocolRecord(name=protocol.name, checksum=protocol.checksum()),
            backend=BackendRecord(
                name=self.backend.name,
                model=self.backend.model,
                fingerprint=engine._fingerprint,
                exact_tokens=self.backend.exact_tokens,
                context_limit=self.backend.context_limit,
                servers=self.backend.servers,
            ),
            reader=engine.store.pool.reader,
            versions=engine._versions,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._on_change = on_change

    def changed(self) -> None:
        self._on_change(self.rollout)

    def now(self) -> float:
        return time.monotonic() - self.began

    async def run(self) -> Rollout:
        """The whole episode. Its failures are in the record; only cancellation comes out."""
        rollout = self.rollout
        try:
            await self._answer(await self._open())
            rollout.status = "answered" if rollout.answer is not None else "no_answer"
        except asyncio.CancelledError:
            rollout.status = "cancelled"
            raise
        except ParavtError as error:
            rollout.status, rollout.error = "failed", str(error)
        finally:
            rollout.backend.notes = self.backend.notes()
            fill_usage(rollout, seconds=self.now())
            self.changed()
        return rollout

    async def _open(self) -> tuple[EpisodeContext, list[Message]]:
        """Probe the video, decode the overview, and write the conversation's start."""
        question, settings, rollout = self.question, self.settings, self.rollout
        store = self.engine.store
        subtitles: list[Subtitle] = read_subtitles(question.subtitles) if question.subtitles else []
        info = await store.probe(question.video)
        facts = {name: getattr(info, name) for name in VideoRecord.model_fields}
        rollout.video = VideoRecord(**facts)
        self.changed()
        sizing = self.backend.sizing(settings.min_pixels, settings.max_pixels)
        times = sample_times(0, info.duration, fps=settings.fps, limit=settings.frames)
        frames = await store.frames(question.video, times, sizing)
        rollout.overview = frame_refs(frames, sizing)
        rollout.overview_seconds = self.now()
        self.changed()
        scene = EpisodeContext(
            episode=rollout.id,
            began=self.began,
            question=question,
            subtitles=subtitles,
            duration=info.duration,
            settings=settings,
            protocol=self.protocol,
            backend=self.backend,
            store=store,
            sizing=sizing,
            changed=self.changed,
        )
        shown = subtitles_at(subtitles, [frame.time for frame in frames])
        return scene, self.protocol.opening_messages(question, frames, info.duration, shown)

    async def _answer(self, opened: tuple[EpisodeContext, list[Message]]) -> None:
        """Turn after turn, until there is an answer or the last turn has been asked for one."""
        scene, messages = opened
        settings, protocol, rollout = self.settings, self.protocol, self.rollout
        talk = _Conversation(self.backend)
        may_call = protocol.calls_tools and settings.max_tool_turns > 0
        tool_turns = 0
        while True:
            turn = await self._turn(talk, messages, "main" if may_call else "final")
            parsed = protocol.parse_calls(turn.response) if may_call else []
            turn.forged_response = has_forged_response(turn.response)
            if not parsed:
                reading = protocol.extract_answer(turn.response, self.question)
                if reading is not None or not may_call:
                    self._conclude(reading or extract_answer(turn.response))
                    return
                # Neither a call nor an answer: one more turn, asked for the answer.
                may_call, messages = False, protocol.ask_for_answer(self.question)
                continue
            first = len(rollout.evidence)
            turn.calls = list(range(first, first + len(parsed)))
            told = await run_calls(scene, len(rollout.turns) - 1, parsed, rollout.evidence)
            messages = protocol.tool_messages(told)
            tool_turns += 1
            if tool_turns == settings.max_tool_turns:
                may_call = False
                messages = [*messages, *protocol.ask_for_answer(self.question)]

    async def _turn(self, talk: _Conversation, messages: Sequence[Message], kind: Literal["main", "final"]) -> Turn:
        """Feed `messages` and let the main agent speak once."""
        settings, protocol, rollout = self.settings, self.protocol, self.rollout
        number = len(rollout.turns)
        prefixed = settings.think_prefix == "every" or (settings.think_prefix == "first" and number == 0)
        turn = Turn(kind=kind, prefix=THINK if prefixed else "", started=self.now())
        turn.request_id = f"{rollout.id}-{number}"
        rollout.turns.append(turn)
        turn.fed_ids = talk.feed(messages, tools=protocol.tools(), prefix=turn.prefix)
        self.changed()
        stops = protocol.call_ends if settings.dispatch == "sequential" and kind == "main" else ()
        request = Request(
            id=turn.request_id,
            ids=list(talk.ids),
            messages=list(talk.messages),
            tools=protocol.tools(),
            frames=list(talk.frames),
            sampling=SamplingParams(
                max_new_tokens=settings.max_new_tokens,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                seed=derive_seed(settings.seed, "main", number),
                stop=stops,
                regex=settings.turn_regex[number] if number < len(settings.turn_regex) else None,
                logprobs=settings.logprobs,
            ),
            affinity=rollout.id,
        )
        try:
            generation = await self.backend.generate(request)
        finally:
            turn.seconds = self.now() - turn.started
        record_generation(turn, generation)
        talk.hear(turn, generation.calls)
        self.changed()
        return turn

    def _conclude(self, reading: ExtractedAnswer | None) -> None:
        """Write the answer into the record, as a letter where there are options."""
        if reading is None:
            return
        rollout, options = self.rollout, self.question.options
        rollout.answer_text, rollout.answer_source = reading.text, reading.source
        rollout.answer = extract_choice(reading.text, options) if options else reading.text


def _versions() -> dict[str, str]:
    found = {"paravt-infer": paravt_infer.__version__, "python": platform.python_version()}
    for package in ("av", "numpy", "transformers", "torch", "xgrammar"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
