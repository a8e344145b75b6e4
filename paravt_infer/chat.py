"""Messages to token ids through the model's chat template, each message once.

Generated tokens are never decoded and tokenised again: a conversation is a growing list of ids, and only what the
template writes *around* new messages is tokenised. A frame is one placeholder id in this list, which the backend
expands, so ids and frames are matched in one place: here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paravt_infer.errors import ModelError
from paravt_infer.video.types import Frame

_ASSISTANT_TEXT = "\u2402here\u2403"
"""Stands for an assistant's text, to find what the template writes after it."""


@dataclass(kw_only=True)
class Message:
    """One message: a role, and its text and frames in order."""

    role: str
    parts: list[str | Frame]
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Structured tool calls, where a chat endpoint returned them (assistant only)."""

    @property
    def frames(self) -> list[Frame]:
        return [part for part in self.parts if isinstance(part, Frame)]

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))


class ChatTemplate:
    """The model's tokenizer and chat template.

    Args:
        tokenizer: a transformers tokenizer with a chat template.
        image_token_id: the id that stands for one frame.
        media_token_ids: all ids that stand for images or their delimiters; they must not be generated.
    """

    def __init__(self, tokenizer: Any, *, image_token_id: int, media_token_ids: Sequence[int] = ()):
        self.tokenizer = tokenizer
        self.image_token_id = image_token_id
        self.media_token_ids = tuple(media_token_ids)
        added = [str(t) for t in tokenizer.added_tokens_decoder.values() if str(t).startswith("<|")]
        special = sorted({*tokenizer.all_special_tokens, *added}, key=len, reverse=True)
        self._special = re.compile("|".join(re.escape(token) for token in special)) if special else None

    def encode_start(self, messages: Sequence[Message], *, tools: list[dict[str, Any]] | None = None) -> list[int]:
        """The ids of a conversation's start, up to the assistant's first token.  # [prompt]

        Raises:
            ModelError: the template cannot render these messages, or drops a frame.
        """
        return self._encode_with_frames(self._render(messages, tools=tools), messages)

    def encode_continuation(self, output_ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """The ids after an assistant turn: its end, `messages`, and the opening of the next turn.  # [fed]

        Args:
            output_ids: what the assistant generated. Where that does not end the turn (truncated, or stopped after
                a call), the end-of-turn token is part of what is fed.
        """
        dialogue = [Message(role="user", parts=["?"]), Message(role="assistant", parts=[_ASSISTANT_TEXT])]
        whole = self._render([*dialogue, *messages])
        # How the template renders earlier turns (some drop their thoughts) does not matter: they are ids already.
        _, found, rest = whole.partition(_ASSISTANT_TEXT)
        if not found:
            raise ModelError("the model's chat template drops assistant text, so it cannot continue a conversation")
        ids = self._encode_with_frames(rest, messages)
        return ids[1:] if output_ids and ids and output_ids[-1] == ids[0] else ids

    def encode_text(self, text: str) -> list[int]:
        """The ids of plain text, such as a think prefix."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of generated ids, with special tokens, but without those that end the turn."""
        kept = list(ids)
        while kept and kept[-1] in self.end_ids:
            kept.pop()
        return str(self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Token ids that end a turn."""
        ids = (self.tokenizer.eos_token_id, self.tokenizer.pad_token_id)
        return tuple(i for i in ids if i is not None)

    def _render(self, messages: Sequence[Message], *, tools: list[dict[str, Any]] | None = None) -> str:
        from jinja2 import TemplateError

        def content(part: str | Frame) -> dict[str, str]:
            if isinstance(part, Frame):
                return {"type": "image"}
            return {"type": "text", "text": self._escape_special_tokens(part)}

        plain = [{"role": message.role, "content": [*map(content, message.parts)]} for message in messages]
        try:
            return str(
                self.tokenizer.apply_chat_template(plain, tools=tools, tokenize=False, add_generation_prompt=True)
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise ModelError(f"the model's chat template rejects these messages: {error}") from None

    def _escape_special_tokens(self, text: str) -> str:
        """`text` with a space inside each special token, so that it cannot forge a turn or a frame."""
        return self._special.sub(lambda m: m.group()[0] + " " + m.group()[1:], text) if self._special else text

    def _encode_with_frames(self, text: str, messages: Sequence[Message]) -> list[int]:
        """The ids of `messages` rendered as `text`. Raises ModelError unless each frame has one placeholder."""
        ids = self.encode_text(text)
        placeholders, frames = ids.count(self.image_token_id), sum(len(message.frames) for message in messages)
        if placeholders != frames:
            roles = "/".join(sorted({message.role for message in messages if message.frames})) or "no"
            raise ModelError(
                f"the model's chat template has {placeholders} image tokens for {frames} frames in {roles} messages; "
                "use evidence=text, or another protocol"
            )
        return ids
