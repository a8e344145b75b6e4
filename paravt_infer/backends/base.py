"""The interface of all backends: a request in, a generation out."""

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
    """How tokens are sampled, and when generation stops."""

    max_new_tokens: int
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Texts that end the generation and are kept in it."""
    regex: str | None = None
    """A regular expression that constrains the whole text."""
    logprobs: bool = False


@dataclass(kw_only=True)
class Request:
    """One generation request. Token-exact backends use `ids`, chat endpoints use `messages`."""

    id: str
    ids: list[int] = field(default_factory=list)
    """The whole prompt, with one placeholder id per frame."""
    messages: Sequence[Message]
    """The same conversation as messages."""
    tools: list[dict[str, Any]] | None = None
    frames: list[Frame] = field(default_factory=list)
    """One per placeholder, in order."""
    sampling: SamplingParams
    affinity: str = ""
    """Requests with the same value share a prefix and are sent to the same server."""


@dataclass(kw_only=True)
class Generation:
    """The result of a request."""

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
    """Structured tool calls, if a chat endpoint parsed them; `text` contains them too."""


class Backend(ABC):
    """Base class of backends. Started before use and closed after; `Engine` does both."""

    name: str
    exact_tokens: bool
    """Whether the ids fed and generated are known exactly. Training requires it."""
    accepts_tensors: bool = False
    """Whether `update_weights` accepts tensors."""
    batches_requests: bool = False
    """Whether simultaneous requests form a static batch that later ones wait for; sub-agents are then sent together."""

    model: str = ""
    context_limit: int | None = None
    chat: ChatTemplate | None = None
    """The model's chat template; None if messages are sent to an endpoint as they are."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model or connect to its servers. Raises ModelError or BackendError."""

    @abstractmethod
    async def generate(self, request: Request) -> Generation:
        """Run one generation. Cancelling the call aborts it in the model, too.

        Raises:
            BackendError: it failed, also after retries.
            ContextLimitError: it does not fit into the context.
        """

    async def update_weights(
        self, version: str, *, folder: Path | None = None, tensors: Mapping[str, Any] | None = None
    ) -> None:
        """Replace the model's weights, for training.

        Running generations finish first and later ones wait. When this returns, every new generation has `version` as
        its `weight_version`, and caches hold nothing from older weights.

        Args:
            folder: a model folder that the backend, or its servers, can read.
            tensors: the model's state dict; only if `accepts_tensors`.

        Raises:
            BackendError: it failed or could not be confirmed; later generations must not be used.
        """
        raise BackendError(f"backend {self.name} cannot change its weights; train with sglang or transformers")

    async def close(self) -> None:  # noqa: B027
        """Free what `start` allocated, and stop the servers that it started."""

    @abstractmethod
    def frame_sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        """The frame sizes that the model accepts within these pixel bounds."""

    @property
    def servers(self) -> list[str]:
        """Base URLs."""
        return []

    def versions(self) -> dict[str, str]:
        """Versions of the software used, by name."""
        return {}

    def notes(self) -> list[str]:
        """Caveats for whoever reads the results."""
        return []

    def fit_to_context(self, sampling: SamplingParams, prompt_tokens: int) -> SamplingParams:
        """`sampling` with as many new tokens as the context has room for, at most.

        Raises:
            ContextLimitError: there is no room at all.
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
    """The requested pixel bounds, clamped to those of the image processor that will see the frames.

    A processor enlarges frames of fewer than `floor` pixels, so the bounds are raised to it.
    """
    low = min(max(min_pixels, floor), ceiling)
    return FrameSizing(multiple=multiple, min_pixels=low, max_pixels=max(low, min(max_pixels, ceiling)))


def derive_seed(seed: int | None, *parts: object) -> int | None:
    """A seed for one part of an episode, the same in every process; None stays None.

    >>> derive_seed(7, "turn", 0) == derive_seed(7, "turn", 0) != derive_seed(7, "turn", 1)
    True
    """
    if seed is None:
        return None
    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
