"""A cache bounded by weight, in which concurrent requests for the same key share one computation (single flight)."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

from cachetools import LRUCache

T = TypeVar("T")


class SingleFlightCache:
    """Values by key; the least recently used ones are dropped first. Failures are not kept.

    Args:
        limit: what the values may weigh together, such as bytes. A heavier value is returned and not kept.
    """

    def __init__(self, limit: int):
        self._values: LRUCache[Hashable, tuple[int, Any]] = LRUCache(limit, getsizeof=lambda entry: entry[0])
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}

    @property
    def weight(self) -> int:
        """What the kept values weigh together."""
        return int(self._values.currsize)

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]], weigh: Callable[[T], int]) -> T:
        """The value of `key`: the kept one, or what `make` returns, called once for all who wait."""
        if key in self._values:
            return self._values[key][1]  # type: ignore[no-any-return]
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(make())
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._land(key, done, weigh))
        # Shielded: one caller's cancellation must not take the value from the others.
        return await asyncio.shield(flight)

    def _land(self, key: Hashable, flight: asyncio.Task[T], weigh: Callable[[T], int]) -> None:
        self._flights.pop(key, None)
        if flight.cancelled() or flight.exception() is not None:
            return
        weight = weigh(flight.result())
        if weight <= self._values.maxsize:
            self._values[key] = weight, flight.result()

    def clear(self) -> None:
        """Cancel what is being computed and forget everything."""
        for flight in self._flights.values():
            flight.cancel()
        self._values.clear()
