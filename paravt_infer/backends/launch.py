"""Starts SGLang servers, waits until they are ready, and stops them."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from paravt_infer.backends.http import free_port
from paravt_infer.backends.sglang import SGLangBackend, mm_process_config
from paravt_infer.errors import BackendError


class SGLangServer:
    """An SGLang server that runs as a subprocess.

    Example::

        server = SGLangServer("ParaVT/ParaVT-8B")
        await server.start(say=print)
        ...
        server.stop()
    """

    def __init__(
        self,
        model: str,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        min_pixels: int = 784,
        max_pixels: int = 50176,
        seconds: float = 1800.0,
    ):
        """
        Args:
            arguments: further command-line arguments of `sglang.launch_server`.
            environment: further environment variables.
            min_pixels, max_pixels: the server does not resize frames within these bounds.
            seconds: how long it may take to become ready.
        """
        self.model = model
        self.seconds = seconds
        self.port = free_port("127.0.0.1")
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = Path(tempfile.mkstemp(prefix="paravt-sglang-", suffix=".log")[1])
        self._command = [
            *(sys.executable, "-m", "sglang.launch_server"),
            *("--model-path", model, "--host", "127.0.0.1", "--port", str(self.port)),
            *("--enable-cache-report", "--enable-metrics"),
            *("--mm-process-config", mm_process_config(min_pixels, max_pixels)),
            *arguments,
        ]
        self.environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, say: Callable[[str], None] = lambda line: None) -> None:
        """Start the server and wait until it is ready.

        Raises:
            BackendError: it exited, or was not ready in time; names its log.
        """
        say(f"starting an SGLang server for {self.model} (log: {self.log})")
        process = self._process = self._spawn()
        began, shown = time.monotonic(), ""
        async with httpx.AsyncClient(timeout=5) as client:
            while True:
                if process.poll() is not None:
                    raise BackendError(f"the SGLang server exited at start-up ({self._last_line()}); see {self.log}")
                with suppress(httpx.TransportError):
                    if (await client.get(self.url + "/health")).status_code == 200:
                        break
                if time.monotonic() - began > self.seconds:
                    self.stop()
                    raise BackendError(f"the SGLang server was not ready after {self.seconds:g} s; see {self.log}")
                if (line := self._last_line() or "starting") != shown:
                    say(f"SGLang server: {time.monotonic() - began:.0f} s, {line}")
                    shown = line
                await asyncio.sleep(0.5)
        say(f"SGLang server ready at {self.url} after {time.monotonic() - began:.0f} s")

    def _spawn(self) -> "subprocess.Popen[bytes]":
        """In its own session, so that stopping it stops its subprocesses, and Ctrl-C does not reach it before us.

        If this process is killed, nothing here can stop the server, which would keep its GPU: the watchdog does it.
        """
        command = [sys.executable, "-I", str(Path(__file__).with_name("watchdog.py")), *self._command]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )

    def _last_line(self) -> str:
        """The last line of the log, shortened."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 4096))
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:120] if lines else ""

    def stop(self) -> None:
        """Stop the server and its subprocesses."""
        if self._process is None:
            return
        for sign, seconds in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 15.0)):
            try:
                os.killpg(self._process.pid, sign)
            except ProcessLookupError:
                break
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()
        self._process = None


class LaunchedSGLangBackend(SGLangBackend):
    """SGLang servers that are started and stopped with the backend.

    Args:
        gpus: one server on each, numbered among the GPUs visible to this process; by default one server that sees all.
        arguments, environment: as for `SGLangServer`.

    Raises:
        BackendError: no GPU has such a number.
    """

    def __init__(
        self,
        model: str,
        *,
        gpus: Sequence[int] = (),
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ):
        shared = dict(environment or {})
        environments = [{**shared, "CUDA_VISIBLE_DEVICES": _device_name(gpu)} for gpu in gpus] or [shared]
        self.processes = [SGLangServer(model, arguments=arguments, environment=env) for env in environments]
        self._say = say
        super().__init__([server.url for server in self.processes], model=model)

    async def start(self) -> None:
        await asyncio.gather(*(server.start(self._say) for server in self.processes))
        await super().start()

    async def close(self) -> None:
        await super().close()
        await asyncio.gather(*(asyncio.to_thread(server.stop) for server in self.processes))


def _device_name(gpu: int) -> str:
    """The value of `CUDA_VISIBLE_DEVICES` for this GPU, numbered among those visible here."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return str(gpu)
    names = [name.strip() for name in allowed.split(",") if name.strip()]
    if gpu >= len(names):
        raise BackendError(f"GPU {gpu} does not exist: CUDA_VISIBLE_DEVICES={allowed} has {len(names)} GPUs")
    return names[gpu]
