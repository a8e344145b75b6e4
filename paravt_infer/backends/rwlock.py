"""Lets requests through, or holds them back while weights change."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class ReadWriteLock:
    """Many may be inside at once; closing it waits until all are out, and keeps new ones waiting.

    So no generation is begun under one set of weights and ended under another: a token's version is certain.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None, None]:
        while not self._open.is_set():
            await self._open.wait()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[None, None]:
        """Alone inside, until the block ends."""
        async with self._one:
            self._open.clear()
            try:
                await self._empty.wait()
                yield
            finally:
                self._open.set()
