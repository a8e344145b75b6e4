"""The engine: opens a model and its frames, and runs episodes, one or many at a time."""

import asyncio
import platform
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import paravt_infer
from paravt_infer.agent import Episode, OnChange
from paravt_infer.backends import open_backend
from paravt_infer.backends.base import Backend
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


class Engine:
    """Answers questions about videos. Start and stop it with ``async with``.

    Args:
        backend: what generates; started and closed with the engine.
        settings: how episodes are run unless a call says otherwise.
        frame_source: where frames come from, closed with the engine; by default video files, read by PyAV.

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
        return await self._run(question, settings or self.settings, on_change or (lambda rollout: None))

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

    async def _run(self, question: Question, settings: Settings, on_change: OnChange) -> Rollout:
        backend = self.backend
        protocol = get_protocol(settings.protocol, system_prompt=settings.system_prompt)
        if settings.think_prefix != "off" and not backend.exact_tokens:
            raise SettingsError("setting think_prefix: needs a token-exact backend (sglang or transformers)")
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
        return await Episode(rollout, backend, self.frame_source, protocol, on_change).run()


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSpec:
    """What answers and how it is reached: everything that opens an engine, for every command and for training.

    Example::

        async with EngineSpec(model="ParaVT/ParaVT-8B").open(Settings(frames=32), say=print) as engine:
            rollout = await engine.ask("film.mp4", "Who opens the door?")
    """

    model: str | None = None
    """Folder or hub id; the bundled checkpoint where neither it nor a server is given."""
    servers: tuple[str, ...] = ()
    """URLs of running servers, or of a router in front of them."""
    backend: str | None = None
    """One of `paravt_infer.backends.BACKENDS`; auto-detected by default."""
    device: str | None = None
    """`cpu`, `cuda`, `cuda:1` ... for the transformers backend."""
    reader: str = DEFAULT_READER
    """What decodes videos."""
    max_batch: int | None = None
    """Requests that the transformers backend runs together at most."""
    gpus: tuple[int, ...] = ()
    """GPUs to start servers on, one each; by default one server on all that it finds."""
    server_arguments: tuple[str, ...] = ()
    """Further arguments of servers that are started."""
    server_environment: Mapping[str, str] = field(default_factory=dict)

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
            say: told what is loading or starting, a line at a time.
            frame_source: in place of video files.

        Raises:
            SettingsError: the fields do not fit together.
            ModelError: the model cannot be loaded.
            BackendError: the server cannot be reached or started.
        """
        source = frame_source or VideoStore(DecodePool(reader=self.reader))
        say(f"loading {self.model or ', '.join(self.servers[:1]) or 'the bundled checkpoint'}")
        async with Engine(self.open_backend(say), settings, frame_source=source) as engine:
            yield engine

    def open_backend(self, say: Callable[[str], None] = lambda line: None) -> Backend:
        """The backend alone, not started yet. Raises as `open`."""
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
    found = {"paravt-infer": paravt_infer.__version__, "python": platform.python_version()}
    for package in ("av", "numpy", "transformers", "torch", "xgrammar"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
