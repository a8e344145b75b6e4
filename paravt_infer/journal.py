"""Finished episodes, each appended and synced at once: killed at any moment, nothing is lost or asked twice."""

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
from paravt_infer.model import folder_fingerprint
from paravt_infer.protocols import get_protocol
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout, rollout_from_json, rollout_to_json
from paravt_infer.settings import Settings


class Journal:
    """The episodes that were finished, and which questions they answer.

    An episode is found again by everything that decides its answer: the question, the size of its video, the
    settings, the protocol's words, the backend, the model and its files, and what decodes. A changed one never reuses
    an old answer, and a failed episode never counts as finished.

    Args:
        path: one rollout a line; made when it is not there. From the first use on until `close`, or the process's
            end, no other process can use it.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file: IO[bytes] | None = None

    def load_finished(self, earlier: Iterable[Rollout] = ()) -> dict[str, Rollout]:
        """Rollouts by key: those of `earlier` and of the file. A line that a kill cut short is taken off the file.

        Raises:
            SettingsError: a line is no rollout (names it), the file cannot be written, or another run is writing it.
        """
        rollouts, whole, file = list(earlier), 0, self._opened()
        file.seek(0)
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                file.truncate(whole)
                break
            whole += len(line)
            rollouts.append(rollout_from_json(line, where=f"{self.path}, line {number}"))
        return {rollout_key(rollout): rollout for rollout in rollouts if rollout.status in ("answered", "no_answer")}

    def append(self, rollout: Rollout) -> None:
        """Append; it is on the disk when this returns. Raises SettingsError where that cannot be."""
        file = self._opened()
        try:
            file.write(rollout_to_json(rollout).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise SettingsError(
                f"{self.path}: cannot be written ({error.strerror}); make room and start again"
            ) from None

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                file = self.path.open("a+b")
            except OSError as error:
                raise SettingsError(f"{self.path}: cannot be written ({error.strerror}); name another place") from None
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                file.close()
                raise SettingsError(f"{self.path}: another run is writing it; wait for its end") from None
            except OSError:  # a file system without locks
                pass
            self._file = file
        return self._file

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # what did not go onto a full disk when it was added does not now
                self._file.close()
            self._file = None


class ResumableRun:
    """Questions that one engine is to answer, each once, over any number of runs.

    Args:
        engine: started.
        settings: the engine's own by default.
        earlier: rollouts of former runs, beside those in the journal.
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
        backend = engine.backend
        about = _about(
            self.settings, backend.name, backend.model, folder_fingerprint(backend.model), engine.frame_source.name
        )
        self.keys = [_key(question, _size(question.video), about) for question in questions]
        self.questions = dict(zip(self.keys, questions, strict=True))
        found = journal.load_finished(earlier)
        self.done = {key: found[key] for key in self.questions if key in found}
        self.reused = len(self.done)
        """How many were finished before."""

    async def run(self, *, concurrency: int, part: slice = slice(None)) -> AsyncGenerator[Rollout, None]:
        """All rollouts: those already there first, the others as they finish. Leaving early cancels what runs.

        Args:
            part: only these of the questions, each counted once.
        """
        chosen = dict(list(self.questions.items())[part])
        names = {id(question): key for key, question in chosen.items()}
        waiting = [question for key, question in chosen.items() if key not in self.done]
        episodes = self.engine.ask_many(waiting, concurrency=concurrency, settings=self.settings)
        try:
            for rollout in [self.done[key] for key in chosen if key in self.done]:
                yield rollout
            async with aclosing(episodes):
                async for rollout in episodes:
                    self.journal.append(rollout)
                    self.done[names[id(rollout.question)]] = rollout
                    yield rollout
        finally:
            self.journal.close()

    def rollouts(self) -> list[Rollout]:
        """In the questions' order; those that are finished or have failed."""
        return [self.done[key] for key in self.keys if key in self.done]


def rollout_key(rollout: Rollout) -> str:
    """Names everything that decided a rollout's answer."""
    backend = rollout.backend
    about = _about(rollout.settings, backend.name, backend.model, backend.fingerprint, rollout.reader)
    if rollout.protocol is not None:
        about["protocol"] = rollout.protocol.checksum
    return _key(rollout.question, rollout.video.size_bytes if rollout.video else None, about)


def _about(settings: Settings, backend: str, model: str, files: str, reader: str) -> dict[str, Any]:
    protocol = get_protocol(settings.protocol, system_prompt=settings.system_prompt).checksum()
    about = {"settings": settings.model_dump(), "backend": backend, "model": model, "reader": reader}
    return about | {"files": files, "protocol": protocol}


def _key(question: Question, size: int | None, about: dict[str, Any]) -> str:
    parts = [question.model_dump(), size, about]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _size(video: str) -> int | None:
    path = Path(video)
    return path.stat().st_size if path.is_file() else None
