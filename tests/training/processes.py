"""Training runs in processes of their own: alone, as torchrun starts them, or killed at a moment that a test names.

As a script it is the last: ``python processes.py PATTERN MODULE ARGUMENT...`` runs a module and kills itself (SIGKILL)
when a file or folder whose path matches PATTERN is about to be renamed.
"""

import os
import re
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """This process's, with the project and its tests to import and one thread."""
    path = os.pathsep.join(map(str, [ROOT, ROOT / "tests", ROOT / "tests/training"]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | more


def run(*command: str) -> None:
    """What Python runs, to its end and without a fault."""
    done = _run(*command)
    assert done.returncode == 0, done.stderr[-3000:]


def run_killed(pattern: str, module: str, *arguments: str) -> None:
    """A module that is killed when something of such a path is about to be renamed."""
    done = _run(__file__, pattern, module, *arguments)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:] or "it ended before it could be killed"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], env=environment(), capture_output=True, text=True, timeout=600)


def run_processes(count: int, *command: str, fail: bool = False) -> list[str]:
    """The same in so many processes as torchrun starts them, all of which are to fail or none; what each said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        subprocess.Popen(
            [sys.executable, *command],
            env=environment(**shared, RANK=str(rank), LOCAL_RANK=str(rank)),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        said = []
        for process in running:
            said.append(process.communicate(timeout=600)[1])
            assert (process.returncode != 0) == fail, said[-1][-3000:]
        return said
    finally:
        for process in running:
            process.kill()


def main() -> None:
    pattern, module, *arguments = sys.argv[1:]

    def watch(event: str, about: tuple[Any, ...]) -> None:
        if event == "os.rename" and re.search(pattern, str(about[0])):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
