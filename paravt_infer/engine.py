"""The engine: answers questions about videos, one or many at a time, with one backend and one frame source."""

import asyncio
import platform
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import islice

import paravt_infer
from paravt_infer.agent import Episode
from paravt_infer.backends import open_backend
from paravt_infer.backends.base import Backend
from paravt_infer.dispatch import EpisodeContext
from paravt_infer.errors import SettingsError
from paravt_infer.model import folder_fingerprint
from paravt_infer.protocols import get_protocol
from paravt_infer.questions import Question
from paravt_infer.rollout import BackendRecord, ProtocolRecord, Rollout
from paravt_infer.settings import Settings
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.readers import DEFAULT_READER
from paravt_infer.video.source import FrameSource
from paravt_infer.video.store import VideoStore

OnChange = Callable[[Rollout], None]


class Engine:
    """Answers questions about videos. Start and stop it with ``async with``.

    Args:
        backend: generates text; started and closed with the engine.
        settings: defaults of every episode.
        frame_source: where frames come from, closed with the engine; by default video files decoded by PyAV.

    Example::

        async with Engine(backend, Settings(frames=32)) as engine:
            rollout = await engine.ask("film.mp4", "Which came first?", options=["the dog", "the cat"])
            async for rollout in engine.ask_many(questions, concurrency=16):
                print(rollout.question.id, rollout.answer)
    """

    def __init__(self, backend: Backend, settings: Settings | None = None, *, frame_source: FrameSource | None = None):
        self.backend = backend
        self.settings = settings or Settings()
        self.frame_source: FrameSource = frame_source or VideoStore(DecodePool())
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
        """Close the backend and the frame source."""
        try:
            await self.backend.close()
        finally:
            await self.frame_source.close()

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
        """Answer one question and return the record.

        Failures of the episode (of the video or the backend) are recorded as `status` and `error`.

        Args:
            video: path of the video, or a complete `Question`.
            text: the question.
            options: for multiple choice; letter to text, or texts alone.
            settings: of this episode; by default the engine's.
            on_change: called with the record after every change.

        Raises:
            SettingsError: the question or the settings are invalid.
        """
        if isinstance(video, Question):
            question = video
        else:
            question = Question.make(video=video, text=text, options=options, subtitles=subtitles)
        return await self._run(question, settings or self.settings, on_change or (lambda rollout: None))

    async def ask_many(
        self,
        questions: Iterable[Question],
        *,
        concurrency: int = 8,
        ordered: bool = False,
        settings: Settings | None = None,
    ) -> AsyncGenerator[Rollout, None]:
        """Answer many questions, `concurrency` at a time; yields records as they finish, or in order if `ordered`.

        The iterable is read as records are taken, so a slow reader holds it back; if `ordered`, as episodes finish, so
        that a slow episode does not hold back the others. Closing the iterator cancels the running episodes.
        """
        if concurrency < 1:
            raise SettingsError(f"concurrency must be at least 1, not {concurrency}")
        source = iter(questions)
        tasks: list[asyncio.Task[Rollout]] = []  # not yielded yet, in the order of the questions
        finished: list[asyncio.Task[Rollout]] = []  # of these, in the order in which they finished

        def refill() -> None:
            counted = len(tasks) - len(finished) if ordered else len(tasks)
            for question in islice(source, concurrency - counted):
                tasks.append(asyncio.create_task(self.ask(question, settings=settings)))
                tasks[-1].add_done_callback(finished.append)

        try:
            refill()
            while tasks:
                ready = tasks[0] if ordered else next(iter(finished), None)
                if ready in finished:
                    tasks.remove(ready)
                    finished.remove(ready)
                    refill()
                    yield ready.result()
                else:
                    await asyncio.wait(set(tasks).difference(finished), return_when=asyncio.FIRST_COMPLETED)
                    refill()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, question: Question, settings: Settings, on_change: OnChange) -> Rollout:
        """Start the question's record and run its episode."""
        backend = self.backend
        protocol = get_protocol(settings.protocol, system_prompt=settings.system_prompt)
        if settings.think_prefix != "off" and not backend.exact_tokens:
            raise SettingsError("setting think_prefix: needs a token-exact backend; use sglang or transformers")
        rollout = Rollout(
            id=uuid.uuid4().hex[:12],
            question=question,
            settings=settings,
            protocol=ProtocolRecord(name=protocol.name, checksum=protocol.checksum()),
            backend=BackendRecord(
                name=backend.name,
                model=backend.model,
                fingerprint=self._fingerprint,
                exact_tokens=backend.exact_tokens,
                context_limit=backend.context_limit,
                servers=backend.servers,
            ),
            reader=self.frame_source.name,
            versions=self._versions,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        context = EpisodeContext(
            rollout=rollout, protocol=protocol, backend=backend, frame_source=self.frame_source, on_change=on_change
        )
        return await Episode(context).run()


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSpec:
    """A model, how it is served and what decodes videos: opens engines for every command and for training.

    Example::

        async with EngineSpec(model="ParaVT/ParaVT-8B").open(Settings(frames=32), say=print) as engine:
            rollout = await engine.ask("film.mp4", "Who opens the door?")
    """

    model: str | None = None
    """Folder or hub id; the bundled checkpoint if neither a model nor a server is given."""
    servers: tuple[str, ...] = ()
    """URLs of running servers, or of a router in front of them."""
    backend: str | None = None
    """One of `paravt_infer.backends.BACKENDS`; auto-detected by default."""
    device: str | None = None
    """`cpu`, `cuda`, `cuda:1` ... for the transformers backend."""
    reader: str = DEFAULT_READER
    """Decodes videos: a name in `paravt_infer.video.readers.READERS`."""
    max_batch: int | None = None
    """Maximum batch size of the transformers backend."""
    gpus: tuple[int, ...] = ()
    """GPUs to start one server each on; by default one server that sees all GPUs."""
    server_arguments: tuple[str, ...] = ()
    """Further arguments of the servers that are started."""
    server_environment: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of those servers."""

    @asynccontextmanager
    async def open(
        self,
        settings: Settings | None = None,
        *,
        say: Callable[[str], None] = lambda line: None,
        frame_source: FrameSource | None = None,
    ) -> AsyncGenerator[Engine, None]:
        """A started engine, closed when the block ends.

        Args:
            say: gets a line when something is loading or starting.
            frame_source: replaces video files.

        Raises:
            SettingsError: the fields contradict each other, or name an unknown backend.
            VideoError: unknown reader.
            ModelError: the model cannot be loaded.
            BackendError: the server cannot be reached or started.
        """
        source = frame_source or VideoStore(DecodePool(reader=self.reader))
        say(f"loading {self.model or next(iter(self.servers), 'the bundled checkpoint')}")
        async with Engine(self.open_backend(say), settings, frame_source=source) as engine:
            yield engine

    def open_backend(self, say: Callable[[str], None] = lambda line: None) -> Backend:
        """The backend alone, not started yet. Raises SettingsError as `open` does."""
        return open_backend(
            backend=self.backend,
            model=self.model,
            servers=self.servers,
            device=self.device,
            max_batch=self.max_batch,
            gpus=self.gpus,
            server_arguments=self.server_arguments,
            server_environment=self.server_environment,
            say=say,
        )


def _versions() -> dict[str, str]:
    """The versions of the packages that an answer may depend on."""
    found = {"paravt-infer": paravt_infer.__version__, "python": platform.python_version()}
    for package in ("av", "numpy", "transformers", "torch", "xgrammar"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
