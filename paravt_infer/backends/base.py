"""The one small interface of all backends: a request in, a generation out."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from paravt_infer.chat import ChatTemplate, Message
from paravt_infer.errors import BackendError, ContextLimitError
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn."""

    max_new_tokens: int
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Texts that end the generation; they stay part of it."""
    regex: str | None = None
    """The whole text is held to this expression."""
    logprobs: bool = False


@dataclass(kw_only=True)
class Request:
    """One generation. Token-exact backends read `ids`, chat endpoints read `messages`."""

    id: str
    ids: list[int] = field(default_factory=list)
    """The whole prompt, each frame as one placeholder id."""
    messages: Sequence[Message]
    """The same conversation as messages."""
    tools: list[dict[str, Any]] | None = None
    frames: list[Frame] = field(default_factory=list)
    """One for each placeholder, in order."""
    sampling: SamplingParams
    affinity: str = ""
    """Requests that share it share a prefix, and are sent to the same server where there are several."""


@dataclass(kw_only=True)
class Generation:
    """What came back."""

    ids: list[int]
    text: str
    finish: Literal["stop", "length", "abort"]
    prompt_tokens: int
    visual_tokens: int = 0
    cached_tokens: int | None = None
    logprobs: list[float] | None = None
    weight_version: str | None = None
    server: str | None = None
    attempts: int = 1
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Structured tool calls, where a chat endpoint parsed them itself; `text` holds them too."""


class Backend(ABC):
    """What turns tokens into tokens. Start it before use; `Engine` does both."""

    name: str
    exact_tokens: bool
    """Whether the ids fed and generated are known, to the token. Training refuses a backend without."""
    accepts_tensors: bool = False
    """Whether weights can be handed over without a file."""
    batches_requests: bool = False
    """Whether requests that arrive together run together and later ones wait: sub-agents are then sent at once."""

    model: str = ""
    context_limit: int | None = None
    chat: ChatTemplate | None = None
    """The model's chat format; None where messages are sent as they are."""

    @abstractmethod
    async def start(self) -> None:
        """Make ready. Raises ModelError or BackendError with one line."""

    @abstractmethod
    async def generate(self, request: Request) -> Generation:
        """One generation. Cancelling the call aborts it where it runs.

        Raises:
            BackendError: it failed for good.
            ContextLimitError: it does not fit the context.
        """

    async def update_weights(
        self, version: str, *, folder: Path | None = None, tensors: Mapping[str, Any] | None = None
    ) -> None:
        """Use other weights of the same model, for training.

        Generations under way end first and later ones wait; when this returns, all that is generated bears `version`
        as its `weight_version`, and nothing is kept in a cache that older weights made.

        Args:
            folder: a model folder that the backend, or its servers, can read.
            tensors: by the names of the model's own state; only where `accepts_tensors`.

        Raises:
            BackendError: it could not be done, or not be confirmed; what is generated from then on is not to be used.
        """
        raise BackendError(f"backend {self.name} cannot change its weights; train with sglang or transformers")

    async def close(self) -> None:  # noqa: B027
        """Free what `start` took; end no process that it did not start."""

    @abstractmethod
    def frame_sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        """The sizes frames are sent in, for the asked pixel bounds."""

    @property
    def servers(self) -> list[str]:
        return []

    def versions(self) -> dict[str, str]:
        """Versions of what stands behind, by name."""
        return {}

    def notes(self) -> list[str]:
        """What a reader of its results should know."""
        return []

    def fit_to_context(self, sampling: SamplingParams, prompt_tokens: int) -> SamplingParams:
        """`sampling` with no more new tokens than the context has room for.

        Raises:
            ContextLimitError: there is no room at all; names both numbers.
        """
        if self.context_limit is None:
            return sampling
        room = self.context_limit - prompt_tokens - 1
        if room < 1:
            raise ContextLimitError(
                f"the prompt has {prompt_tokens} tokens and the model's context holds {self.context_limit}; "
                "use fewer or smaller frames (--frames), or a server with a longer context"
            )
        return replace(sampling, max_new_tokens=min(sampling.max_new_tokens, room))


def processor_sizing(*, multiple: int, floor: int, ceiling: int, min_pixels: int, max_pixels: int) -> FrameSizing:
    """The asked pixel bounds inside those of the processor that will see the frame.

    A frame smaller than `floor` would be enlarged by the processor anyway, so the bounds move up to it.
    """
    low = min(max(min_pixels, floor), ceiling)
    return FrameSizing(multiple=multiple, min_pixels=low, max_pixels=max(low, min(max_pixels, ceiling)))


def derive_seed(seed: int | None, *parts: object) -> int | None:
    """A seed of its own for each part of an episode, the same in every process.

    >>> derive_seed(7, "turn", 0) == derive_seed(7, "turn", 0) != derive_seed(7, "turn", 1)
    True
    """
    if seed is None:
        return None
    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
