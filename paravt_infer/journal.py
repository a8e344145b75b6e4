"""A journal of finished episodes, each synced to disk: a killed run resumes without losing or repeating any."""

import fcntl
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import IO, Any

from paravt_infer.engine import Engine
from paravt_infer.errors import SettingsError
from paravt_infer.files import writing
from paravt_infer.model import folder_fingerprint
from paravt_infer.protocols import get_protocol
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout, rollout_from_json, rollout_to_json
from paravt_infer.settings import Settings


class Journal:
    """An append-only file of finished episodes.

    An episode is identified by everything that decides its answer: the question, the size of its video, the settings,
    the protocol's checksum, the backend, the model and its files, and the frame source. If any of them changes, the
    old answer is not reused; neither is a failed episode.

    Args:
        path: one rollout per line; created if missing. It is locked against other processes from the first use until
            `close` or the end of the process.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file: IO[bytes] | None = None

    def load_finished(self, earlier: Iterable[Rollout] = ()) -> dict[str, Rollout]:
        """Finished rollouts by key, from `earlier` and the file. A last line that was cut off is removed from the file.

        Raises:
            SettingsError: a line is not a rollout (names it), the file cannot be written, or another run is using it.
        """
        rollouts, whole, file = list(earlier), 0, self._open()
        file.seek(0)
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                file.truncate(whole)
                break
            whole += len(line)
            rollouts.append(rollout_from_json(line, where=f"{self.path}, line {number}"))
        return {rollout_key(rollout): rollout for rollout in rollouts if rollout.status in ("answered", "no_answer")}

    def append(self, rollout: Rollout) -> None:
        """Append a rollout; it is on disk when this returns. Raises SettingsError if the file cannot be written."""
        file = self._open()
        with writing(self.path):
            file.write(rollout_to_json(rollout).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _open(self) -> IO[bytes]:
        if self._file is None:
            with writing(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                file = self.path.open("a+b")
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                file.close()
                raise SettingsError(f"{self.path}: another run is writing it; wait until it ends") from None
            except OSError:  # a file system without locks
                pass
            self._file = file
        return self._file

    def close(self) -> None:
        """Close and unlock the file."""
        if self._file is not None:
            with suppress(OSError):  # closing flushes, which on a full disk fails again
                self._file.close()
            self._file = None


class ResumableRun:
    """Questions that an engine answers, each once, even over several runs.

    Args:
        engine: started.
        settings: by default the engine's.
        earlier: rollouts of former runs that are not in the journal.
    """

    def __init__(
        self,
        engine: Engine,
        questions: Sequence[Question],
        journal: Journal,
        *,
        settings: Settings | None = None,
        earlier: Iterable[Rollout] = (),
    ):
        self.engine, self.journal = engine, journal
        self.settings = settings or engine.settings
        backend, model = engine.backend.name, engine.backend.model
        about = _run_identity(self.settings, backend, model, folder_fingerprint(model), engine.frame_source.name)
        self.keys = [_key(question, _size(question.video), about) for question in questions]
        self.questions = dict(zip(self.keys, questions, strict=True))
        found = journal.load_finished(earlier)
        self.finished = {key: found[key] for key in self.questions if key in found}
        self.reused = len(self.finished)
        """How many questions former runs have answered."""

    async def run(self, *, concurrency: int, part: slice = slice(None)) -> AsyncGenerator[Rollout, None]:
        """Yield all rollouts, those of former runs first, the others as they finish. Leaving early cancels the rest.

        Args:
            part: which of the questions, not counting repeated ones.
        """
        chosen = dict(list(self.questions.items())[part])
        names = {id(question): key for key, question in chosen.items()}
        waiting = [question for key, question in chosen.items() if key not in self.finished]
        episodes = self.engine.ask_many(waiting, concurrency=concurrency, settings=self.settings)
        try:
            for rollout in [self.finished[key] for key in chosen if key in self.finished]:
                yield rollout
            async with aclosing(episodes):
                async for rollout in episodes:
                    self.journal.append(rollout)
                    self.finished[names[id(rollout.question)]] = rollout
                    yield rollout
        finally:
            self.journal.close()

    def rollouts(self) -> list[Rollout]:
        """The rollouts so far, including failed ones, in the order of the questions."""
        return [self.finished[key] for key in self.keys if key in self.finished]


def rollout_key(rollout: Rollout) -> str:
    """A hash of everything that decides a rollout's answer."""
    backend = rollout.backend
    about = _run_identity(rollout.settings, backend.name, backend.model, backend.fingerprint, rollout.reader)
    if rollout.protocol is not None:
        about["protocol"] = rollout.protocol.checksum
    return _key(rollout.question, rollout.video.size_bytes if rollout.video else None, about)


def _run_identity(settings: Settings, backend: str, model: str, files: str, reader: str) -> dict[str, Any]:
    """What decides the answers of a run, apart from the questions."""
    protocol = get_protocol(settings.protocol, system_prompt=settings.system_prompt).checksum()
    about = {"settings": settings.model_dump(), "backend": backend, "model": model, "reader": reader}
    return about | {"files": files, "protocol": protocol}


def _key(question: Question, size: int | None, about: dict[str, Any]) -> str:
    parts = [question.model_dump(), size, about]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _size(video: str) -> int | None:
    path = Path(video)
    return path.stat().st_size if path.is_file() else None
