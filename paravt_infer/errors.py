"""Errors a user may see. Each message is one line: what is wrong, where, and how to fix it."""

from collections.abc import Iterable
from difflib import get_close_matches


class ParavtError(Exception):
    """Base class of every error the user can fix. The command line prints it and exits with status 1."""


class VideoError(ParavtError):
    """A video cannot be read: missing, empty, truncated, not a video, or decoding timed out."""


class ModelError(ParavtError):
    """A model's files cannot be found or loaded, or are of the wrong kind."""


class SettingsError(ParavtError):
    """A setting, a path or an input row is invalid."""


class BackendError(ParavtError):
    """The backend rejected the request, or failed after all retries."""


class ContextLimitError(BackendError):
    """The prompt and the requested tokens do not fit into the model's context."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the closest known name, else all of them.

    >>> suggestion("famres", ["frames", "fps"]), suggestion("x", ["frames", "fps"]), suggestion("x", [])
    ("; did you mean 'frames'?", '; choose from frames, fps', '')
    """
    names = list(known)
    near = get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; choose from {', '.join(names)}" if names else ""


def first_line(error: BaseException, *, limit: int = 200) -> str:
    """The first line of an exception's message; its type's name where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:limit] if lines else type(error).__name__
