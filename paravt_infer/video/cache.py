"""An LRU cache in which concurrent requests for the same key share one computation (single flight)."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from cachetools import LRUCache

T = TypeVar("T")


class SingleFlightCache:
    """A size-bounded LRU cache of computed values. Failures are not cached.

    Args:
        limit: maximum total size of the values, such as bytes. A larger value is returned but not cached.
    """

    def __init__(self, limit: int):
        self._values: LRUCache[Hashable, tuple[int, Any]] = LRUCache(limit, getsizeof=lambda entry: entry[0])
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}

    @property
    def size(self) -> int:
        """The total size of the cached values."""
        return int(self._values.currsize)

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]], size: Callable[[T], int]) -> T:
        """The cached value of `key`, else the result of `make`, which is called once for all who wait."""
        if key in self._values:
            return self._values[key][1]  # type: ignore[no-any-return]
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(make())
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._store(key, done, size))
        # Shielded, so that cancelling one caller does not cancel the others.
        return await asyncio.shield(flight)

    def _store(self, key: Hashable, flight: asyncio.Task[T], size: Callable[[T], int]) -> None:
        self._flights.pop(key, None)
        if flight.cancelled() or flight.exception() is not None:
            return
        value_size = size(flight.result())
        if value_size <= self._values.maxsize:
            self._values[key] = value_size, flight.result()

    def clear(self) -> None:
        """Cancel running computations and drop all values."""
        for flight in self._flights.values():
            flight.cancel()
        self._values.clear()
