"""The films, each written once a run; one pool of decoders; and a minute, after which a test hangs."""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paravt_infer.video.pool import DecodePool
from paravt_infer.video.store import VideoStore
from tests.fixtures.films import Films, write

os.environ["SVT_LOG"] = "1"  # the AV1 encoder reports its settings otherwise


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        here = item.path.parent == Path(__file__).parent
        if here and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _within_a_minute(item.obj)


def _within_a_minute(test: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(test)
    async def guarded(**arguments: object) -> None:
        await asyncio.wait_for(test(**arguments), 60)

    return guarded


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Films:
    """The path of the film of that name in `films.FILMS`."""
    folder = tmp_path_factory.mktemp("films")
    return functools.cache(lambda name: str(write(name, folder)))


@pytest.fixture(scope="session")
def pool() -> Iterator[DecodePool]:
    pool = DecodePool(workers=2, deadline=30)
    yield pool
    asyncio.run(pool.close())


@pytest.fixture
def store(pool: DecodePool) -> VideoStore:
    """An empty one. The pool is everybody's: nobody closes it."""
    return VideoStore(pool)
