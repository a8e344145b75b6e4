"""Servers that are started here: on which GPU, and that they end with who started them."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paravt_infer.backends.launch import LaunchedSGLangBackend
from paravt_infer.errors import BackendError

STAND_IN = """
import http.server, os, subprocess, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("started", os.getpid(), helper.pid, flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Health).serve_forever()
"""
"""What stands in for SGLang: ready at once, with a helper process."""
STARTER = """
import asyncio, signal
from paravt_infer.backends.launch import SGLangServer
server = SGLangServer("some/model")
asyncio.run(server.start())
print(server.log, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_the_process_that_started_it_however_that_ends(tmp_path: Path, sign: int) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "launch_server.py").write_text(STAND_IN)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        log = Path(starter.stdout.readline().strip())
        pids = next(line.split()[1:] for line in log.read_text().splitlines() if line.startswith("started"))
        processes = [os.pidfd_open(int(pid)) for pid in pids]
        starter.send_signal(sign)
    for process in processes:
        assert select.select([process], [], [], 120)[0], f"{pids}: one of them goes on"
        os.close(process)
    log.unlink()


@pytest.mark.parametrize(
    ("allowed", "visible"),
    [(None, ["2", "3"]), ("4,5,6,7", ["6", "7"]), ("GPU-a, GPU-b,GPU-c,GPU-d", ["GPU-c", "GPU-d"])],
)
def test_a_gpu_is_counted_among_those_that_the_process_may_use(
    monkeypatch: pytest.MonkeyPatch, allowed: str | None, visible: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if allowed:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
    backend = LaunchedSGLangBackend("some/model", gpus=[2, 3])
    assert [server.environment["CUDA_VISIBLE_DEVICES"] for server in backend.processes] == visible
    for server in backend.processes:
        server.log.unlink()


def test_a_gpu_that_the_process_may_not_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(BackendError, match=r"GPU 2 does not exist: CUDA_VISIBLE_DEVICES=4,5 has 2 GPUs"):
        LaunchedSGLangBackend("some/model", gpus=[2])
