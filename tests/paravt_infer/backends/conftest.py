"""The two token-exact backends, each ready to use, over the same tiny checkpoint."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paravt_infer.backends import Backend, open_backend
from paravt_infer.backends.launch import Server


@pytest.fixture(params=["transformers", "sglang"])
async def backend(request: pytest.FixtureRequest, tiny: Path) -> AsyncIterator[Backend]:
    """`transformers` in this process, then the real SGLang server on the CPU."""
    servers = [request.getfixturevalue("server").url] if request.param == "sglang" else []
    opened = open_backend(backend=request.param, model=str(tiny), servers=servers)
    await opened.start()
    yield opened
    await opened.close()


@pytest.fixture
async def sglang(server: Server) -> AsyncIterator[Backend]:
    """The real SGLang server; the model's files are found through it."""
    opened = open_backend(servers=[server.url])
    await opened.start()
    yield opened
    await opened.close()


@pytest.fixture
async def in_process(tiny: Path) -> AsyncIterator[Backend]:
    opened = open_backend(model=str(tiny), device="cpu")
    await opened.start()
    yield opened
    await opened.close()
