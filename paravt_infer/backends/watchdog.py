"""Runs a command and stops it when the parent process ends: ``python watchdog.py COMMAND ARGUMENT...``.

Standard input is a pipe that the parent holds open. When it closes, even because the parent was killed by SIGKILL, the
command and its subprocesses, which are all in this process's group, are stopped.
"""

import os
import signal
import subprocess
import sys
import threading

GRACE_SECONDS = 15.0
"""Time between SIGTERM and SIGKILL."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # for the command; this process waits for its exit status
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def stop_with_parent() -> None:
        os.read(0, 1)  # the parent writes nothing: this returns when the pipe closes
        os.killpg(0, signal.SIGTERM)
        threading.Event().wait(GRACE_SECONDS)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    status = command.wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
