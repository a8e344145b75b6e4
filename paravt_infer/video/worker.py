"""A decoding worker: a process of its own that answers index and read requests until its pipe closes.

Started by `paravt_infer.video.pool` as ``python -m paravt_infer.video.worker FD`` and killed by it when late:
native decoders can hang while holding the interpreter's lock, and only a signal ends that.
"""

import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from paravt_infer.errors import ParavtError
from paravt_infer.video.readers import get_reader, read_index


def serve(connection: Connection) -> None:
    """Answer ``(seconds, function, arguments)`` with ``(True, result)`` or ``(False, error line)``."""
    while True:
        try:
            seconds, function, arguments = connection.recv()
        except (EOFError, OSError):
            return
        # Should the parent die while this hangs, nobody kills it: the alarm's default action does.
        signal.setitimer(signal.ITIMER_REAL, seconds + 5)
        reply = _answer(function, arguments)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            connection.send(reply)
        except (BrokenPipeError, OSError):
            return


def _answer(function: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    path = arguments[0] if function == "index" else arguments[1].info.path
    try:
        if function == "index":
            return True, read_index(*arguments)
        reader, *rest = arguments
        return True, get_reader(reader).read(*rest)
    except ParavtError as error:
        return False, str(error)
    except MemoryError:
        return False, f"{path}: not enough memory to decode it; ask for fewer or smaller frames"
    except Exception as error:  # a decoder's own fault must not end the worker
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return False, f"{path}: decoding failed ({reason}); try another copy or reader"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it closes the pipe
    serve(Connection(int(sys.argv[1])))
