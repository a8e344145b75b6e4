"""Runs a command that ends with whoever started it: ``python watch.py COMMAND ARGUMENT...``.

Standard input is a pipe that the starter holds open. When it closes, however the starter came to its end (SIGKILL
among the ways), the command and its helpers, who share this process's session, are ended.
"""

import os
import signal
import subprocess
import sys
import threading

GRACE = 15.0
"""Seconds between SIGTERM and SIGKILL."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # it reaches the command too; this one stays for its exit status
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def watch() -> None:
        os.read(0, 1)  # nothing is ever written: this returns at the pipe's end
        os.killpg(0, signal.SIGTERM)
        threading.Event().wait(GRACE)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    status = command.wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
