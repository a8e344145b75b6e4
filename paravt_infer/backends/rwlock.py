"""A readers-writer lock: generations run together, and never during an update of the weights."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class ReadWriteLock:
    """Many readers, or one writer. A writer waits until all readers are out and keeps new ones waiting.

    No generation starts with one set of weights and ends with another, so every token's weight version is certain.
    """

    def __init__(self) -> None:
        self._readers = 0
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._writer = asyncio.Lock()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None, None]:
        """With other readers, until the block ends."""
        while not self._open.is_set():
            await self._open.wait()
        self._readers += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._empty.set()

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[None, None]:
        """Exclusively, until the block ends."""
        async with self._writer:
            self._open.clear()
            try:
                await self._empty.wait()
                yield
            finally:
                self._open.set()
