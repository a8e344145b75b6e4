"""A decoding worker: a process that answers index and read requests until its pipe closes.

`paravt_infer.video.pool` starts it as ``python -m paravt_infer.video.worker FD`` and kills it when it is late: native
decoders can hang while they hold the GIL, and then only a signal helps.
"""

import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from paravt_infer.errors import ParavtError
from paravt_infer.video.index import read_index
from paravt_infer.video.readers import get_reader


def serve(connection: Connection) -> None:
    """Answer ``(seconds, function, arguments)`` with ``(True, result)`` or ``(False, error line)``."""
    while True:
        try:
            seconds, function, arguments = connection.recv()
        except (EOFError, OSError):
            return
        # If the parent dies while this hangs, the alarm's default action kills it.
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
    except Exception as error:  # an error in a decoder must not end the worker
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return False, f"{path}: decoding failed ({reason}); try another copy or reader"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent closes the pipe
    serve(Connection(int(sys.argv[1])))
