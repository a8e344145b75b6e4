"""What all tests share: a tiny checkpoint, videos, generated benchmarks, and one real SGLang server on the CPU."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from benchmarks.numbered import write_numbered
from paravt_infer.backends.launch import Server
from training.tiny import build_tiny

# Machines that run this are shared: how long one example takes says nothing.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

HERE = Path(__file__).parent

for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # before the hub's libraries are imported
    os.environ.setdefault(name, "1")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3-VL checkpoint with random weights."""
    return build_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A video of 40 seconds, 10 numbered frames a second."""
    path = tmp_path_factory.mktemp("video") / "numbered.mp4"
    return str(write_numbered(path, frames=400, fps=10, gop=50))


@pytest.fixture(scope="session")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated rows and videos of all seven benchmarks, and their task files in `tasks`."""
    from lmms_tasks.fixture import write_tasks
    from training.world.seven import write_seven

    folder = write_seven(tmp_path_factory.mktemp("seven"))
    write_tasks(folder)
    return folder


@pytest.fixture
def offline(seven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of an evaluation on the generated benchmarks; returns their include path."""
    from lmms_tasks.benchmarks import ALL_VIDEOS, BENCHMARKS

    for name in ("HF_HOME", *(one.variable for one in BENCHMARKS.values())):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ALL_VIDEOS, str(seven))
    monkeypatch.setenv("LMMS_EVAL_DATASETS_CACHE", str(tmp_path / "cache"))
    return seven / "tasks"


@pytest.fixture(scope="session")
def server(tiny: Path) -> Iterator[Server]:
    """The unmodified SGLang, serving the tiny checkpoint on the CPU."""
    with running(cpu_server(tiny)) as started:
        yield started


@pytest.fixture
def server_of() -> Iterator[Callable[..., Server]]:
    """Starts a server of its own for a test: `server_of(model, *arguments)`."""
    with ExitStack() as stack:
        yield lambda model, *arguments: stack.enter_context(running(cpu_server(model, *arguments)))


@contextmanager
def running(server: Server) -> Iterator[Server]:
    try:
        with ThreadPoolExecutor(1) as thread:  # a test that asks for this late has its event loop running already
            thread.submit(lambda: asyncio.run(server.start())).result()
        yield server
    finally:
        server.stop()
        server.log.unlink(missing_ok=True)


def cpu_server(model: Path, *arguments: str) -> Server:
    """A server not started yet: the product's own launcher, told to do without a GPU, with these further arguments."""
    return Server(
        str(model),
        arguments=[
            *("--device", "cpu", "--attention-backend", "torch_native", "--mem-fraction-static", "0.3"),
            *("--max-total-tokens", "32768", "--context-length", "16384"),
            "--sleep-on-idle",  # or it takes a whole core from the tests that run beside it
            *arguments,
        ],
        environment={
            "PYTHONPATH": os.pathsep.join([str(HERE / "sglang_cpu"), os.environ.get("PYTHONPATH", "")]),
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "TORCH_COMPILE_DISABLE": "1",
            "OMP_NUM_THREADS": "1",
        },
        seconds=600,
    )
