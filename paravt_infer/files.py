"""Atomic writing of files and folders: a path gets the whole content or stays as it was."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paravt_infer.errors import SettingsError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A scratch path next to `path`, renamed to it when the block ends without an exception.

    The block may write a file or create a folder there. Missing parent folders are created. An existing file is
    replaced by a file, an existing folder by a folder; a link's target is replaced, and a device or pipe is written to.

    Raises:
        SettingsError: the path cannot be written.

    Example::

        with atomic_path(Path("out/results.json")) as scratch:
            scratch.write_text(text)
    """
    with writing(path):
        if path.exists() and not path.is_file() and not path.is_dir():  # a device or a pipe cannot be replaced
            yield path
            return
        path = path.resolve() if path.is_symlink() else path
        scratch = scratch_path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove(scratch)
            yield scratch
            if path.is_dir() and scratch.is_dir():
                shutil.rmtree(path)
            scratch.replace(path)
        except BaseException:
            with suppress(OSError):
                _remove(scratch)
            raise


def scratch_path(path: Path) -> Path:
    """Where `path` is written before it is renamed into place."""
    return path.with_name(f".{path.name}.part")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into a SettingsError: `path` cannot be written."""
    try:
        yield
    except (BrokenPipeError, TimeoutError):  # of whoever reads our output, or of a server
        raise
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise SettingsError(f"{path}: cannot write ({reason}); free some space or choose another path") from None


def write_text_atomic(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically. Raises SettingsError where it cannot be written."""
    with atomic_path(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
