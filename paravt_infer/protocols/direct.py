"""The protocols `direct` and `reasoning`: one turn, no tools (paper, appendix "Evaluation prompts")."""

from typing import ClassVar

from paravt_infer.protocols.base import ChatProtocol


class DirectProtocol(ChatProtocol):
    """The bare question: no system prompt, no reasoning."""

    name = "direct"


class ReasoningProtocol(ChatProtocol):
    """Think, then answer."""

    name = "reasoning"
    default_system: ClassVar[str | None] = (
        "You answer questions about a video. Reason about the question inside <think>...</think> first, "
        "then give the final answer inside <answer>...</answer>."
    )
