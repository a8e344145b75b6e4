"""What all tests share: a tiny checkpoint, a small video, and one real SGLang server on the CPU."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.numbered import write_numbered
from paravt_infer.backends.launch import Server
from training.tiny import build_tiny

HERE = Path(__file__).parent


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
def server(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The unmodified SGLang, serving the tiny checkpoint on the CPU."""
    running = cpu_server(tiny)
    try:
        with ThreadPoolExecutor(1) as thread:  # a test that asks for this late has its event loop running already
            thread.submit(lambda: asyncio.run(running.start())).result()
        yield running
    finally:
        running.stop()
        running.log.unlink(missing_ok=True)


def cpu_server(model: Path) -> Server:
    """A server not started yet: the product's own launcher, told to do without a GPU."""
    return Server(
        str(model),
        arguments=[
            *("--device", "cpu", "--attention-backend", "torch_native", "--mem-fraction-static", "0.3"),
            *("--max-total-tokens", "32768", "--context-length", "16384"),
            "--sleep-on-idle",  # or it takes a whole core from the tests that run beside it
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
