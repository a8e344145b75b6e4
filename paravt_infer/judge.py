"""A language model behind a chat endpoint that judges answers: for the scorer `judge` and the judge of rewards."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from paravt_infer.backends.base import Request, SamplingParams
from paravt_infer.backends.openai import OpenAIBackend
from paravt_infer.chat import Message


class JudgeClient:
    """Asks one model, greedily. `open_judge` starts and stops it."""

    def __init__(self, backend: OpenAIBackend, max_new_tokens: int):
        self._backend = backend
        self._sampling = SamplingParams(max_new_tokens=max_new_tokens)

    @property
    def model(self) -> str:
        """The endpoint's name of the model."""
        return self._backend.model

    async def ask(self, prompt: str) -> str:
        """The reply to `prompt`, without what the model thought first.

        Raises:
            BackendError: the endpoint did not answer.
        """
        message = Message(role="user", parts=[prompt])
        generation = await self._backend.generate(Request(id="judge", messages=[message], sampling=self._sampling))
        return generation.text.rpartition("</think>")[2].strip()


@asynccontextmanager
async def open_judge(
    server: str, *, model: str | None = None, max_new_tokens: int, seconds: float
) -> AsyncGenerator[JudgeClient, None]:
    """A judge, ready to be asked until the block ends.

    Args:
        server: base URL of an OpenAI-compatible endpoint; its key is the environment's OPENAI_API_KEY.
        model: the endpoint's name of the model; by default the first it lists.
        max_new_tokens: what a reply may have; a judge that thinks needs more.
        seconds: how long one request may take.

    Raises:
        BackendError: no model was named, and the endpoint does not list one.
    """
    backend = OpenAIBackend([server], model=model, seconds=seconds)
    try:
        await backend.start()
        yield JudgeClient(backend, max_new_tokens)
    finally:
        await backend.close()
