"""A backend that says what a test tells it to, token-exact through the tiny checkpoint's chat format."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from paravt_infer.backends.base import Backend, Generation, Request, processor_sizing
from paravt_infer.model import load_model_files
from paravt_infer.video.sampling import FrameSizing

Script = Callable[[Request], str | Exception]


class ScriptedBackend(Backend):
    """Main turns take the next of `turns`; sub-agents say what `sub` makes of their request."""

    name = "scripted"
    exact_tokens = True

    def __init__(self, model: Path, turns: list[str], sub: Script = lambda request: "a red circle.", end: bool = True):
        self.model = str(model)
        self.turns, self.sub, self.end = list(turns), sub, end
        self.requests: list[Request] = []
        self.running = self.most_running = 0
        self.cancelled: list[str] = []
        self.hold: asyncio.Event | None = None
        """While set and not fired, sub-agents wait."""

    async def start(self) -> None:
        self.files = load_model_files(self.model)
        self.chat, self.context_limit = self.files.chat, self.files.context_limit

    def sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        return processor_sizing(
            multiple=self.files.multiple, floor=1, ceiling=1 << 30, min_pixels=min_pixels, max_pixels=max_pixels
        )

    @property
    def main(self) -> list[Request]:
        return [request for request in self.requests if request.affinity]

    @property
    def subs(self) -> list[Request]:
        return [request for request in self.requests if not request.affinity]

    async def generate(self, request: Request) -> Generation:
        assert self.chat is not None
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if not request.affinity and self.hold is not None:
                await self.hold.wait()
            await asyncio.sleep(0)
            said = self.turns.pop(0) if request.affinity else self.sub(request)
            if isinstance(said, Exception):
                raise said
        except asyncio.CancelledError:
            self.cancelled.append(request.id)
            raise
        finally:
            self.running -= 1
        for stop in request.sampling.stop:
            head, found, _ = said.partition(stop)
            said = head + found
        ids = self.chat.text_ids(said)
        cut = len(ids) > request.sampling.max_new_tokens
        ids = ids[: request.sampling.max_new_tokens]
        if self.end and not cut and not any(said.endswith(stop) for stop in request.sampling.stop):
            ids = [*ids, self.chat.end_ids[0]]
        visual = sum((f.width // 32) * (f.height // 32) for f in request.frames)
        return Generation(
            ids=ids,
            text=self.chat.decode(ids),
            finish="length" if cut else "stop",
            prompt_tokens=len(request.ids) - len(request.frames) + visual,
            visual_tokens=visual,
        )
