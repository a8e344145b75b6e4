"""An LLM judge behind a chat endpoint: used by the scorer `judge` and by the judge reward."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from paravt_infer.backends.base import Request, SamplingParams
from paravt_infer.backends.openai import OpenAIBackend
from paravt_infer.chat import Message


class JudgeClient:
    """Sends prompts to one model, with greedy decoding. `open_judge` starts and stops it."""

    def __init__(self, backend: OpenAIBackend, max_new_tokens: int):
        self._backend = backend
        self._sampling = SamplingParams(max_new_tokens=max_new_tokens)

    @property
    def model(self) -> str:
        """The model's name at the endpoint."""
        return self._backend.model

    async def ask(self, prompt: str) -> str:
        """The reply to `prompt`, without its reasoning.

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
    """A started judge, closed when the block ends.

    Args:
        server: base URL of an OpenAI-compatible endpoint; its key is read from OPENAI_API_KEY.
        model: the model's name at the endpoint; by default the first one it lists.
        max_new_tokens: maximum tokens per reply, including its reasoning.
        seconds: timeout of one request.

    Raises:
        BackendError: no model was given, and the endpoint does not list one.
    """
    backend = OpenAIBackend([server], model=model, seconds=seconds)
    try:
        await backend.start()
        yield JudgeClient(backend, max_new_tokens)
    finally:
        await backend.close()
