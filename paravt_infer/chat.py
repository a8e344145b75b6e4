"""Messages to token ids, by the model's own chat template, once each.

Nothing generated is ever decoded and tokenised again: a conversation is a growing list of ids, and only what
the template writes *around* new messages is tokenised. A frame is one placeholder id in this list
(the backend expands it), so one mapping, here, holds between ids and frames.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paravt_infer.errors import ModelError
from paravt_infer.video.types import Frame

_MARK = "\u2402here\u2403"
"""Stands for an assistant's text while the template shows what it writes after it."""


@dataclass(kw_only=True)
class Message:
    """One message: a role, and text and frames in the order the model sees them."""

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
        media_token_ids: every id that stands for a picture or its borders; none of them may be generated.
    """

    def __init__(self, tokenizer: Any, *, image_token_id: int, media_token_ids: Sequence[int] = ()):
        self.tokenizer = tokenizer
        self.image_token_id = image_token_id
        self.media_token_ids = tuple(media_token_ids)
        added = [str(t) for t in tokenizer.added_tokens_decoder.values() if str(t).startswith("<|")]
        special = sorted({*tokenizer.all_special_tokens, *added}, key=len, reverse=True)
        self._special = re.compile("|".join(re.escape(token) for token in special)) if special else None

    def encode_start(self, messages: Sequence[Message], *, tools: list[dict[str, Any]] | None = None) -> list[int]:
        """The ids of a conversation's start, up to where the assistant speaks.  # [prompt]

        Raises:
            ModelError: the template cannot hold these messages, or loses a frame.
        """
        return self._ids(self._render(messages, tools=tools), messages)

    def encode_continuation(self, output_ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """The ids that follow an assistant turn: its end, `messages`, and the next turn's opening.  # [fed]

        Args:
            output_ids: what the assistant generated. Where it did not end its turn (cut, or stopped at a
                call's end), the end is part of what is fed.
        """
        dialogue = [Message(role="user", parts=["?"]), Message(role="assistant", parts=[_MARK])]
        whole = self._render([*dialogue, *messages])
        # What the template makes of earlier turns (some drop their thoughts) does not matter: they are ids already.
        _, mark, rest = whole.partition(_MARK)
        if not mark:
            raise ModelError("the model's chat template drops an assistant's words; it cannot be continued")
        ids = self._ids(rest, messages)
        return ids[1:] if output_ids and ids and output_ids[-1] == ids[0] else ids

    def encode_text(self, text: str) -> list[int]:
        """The ids of a piece of the assistant's own text, such as a think prefix."""
        return self._encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids, tags kept, without the tokens that end the turn."""
        kept = list(ids)
        while kept and kept[-1] in self.end_ids:
            kept.pop()
        text: str = self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end a turn."""
        ids = (self.tokenizer.eos_token_id, self.tokenizer.pad_token_id)
        return tuple(i for i in ids if i is not None)

    def _render(self, messages: Sequence[Message], *, tools: list[dict[str, Any]] | None = None) -> str:
        from jinja2 import TemplateError

        plain = [
            {
                "role": message.role,
                "content": [
                    {"type": "image"} if isinstance(part, Frame) else {"type": "text", "text": self._harmless(part)}
                    for part in message.parts
                ],
            }
            for message in messages
        ]
        try:
            text: str = self.tokenizer.apply_chat_template(
                plain, tools=tools, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise ModelError(f"the model's chat template refuses these messages: {error}") from None
        return text

    def _harmless(self, text: str) -> str:
        """Text that can forge no turn and no frame: special tokens in it are broken by a space."""
        return self._special.sub(lambda m: m.group()[0] + " " + m.group()[1:], text) if self._special else text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _ids(self, text: str, messages: Sequence[Message]) -> list[int]:
        ids = self._encode(text)
        frames = sum(len(message.frames) for message in messages)
        if ids.count(self.image_token_id) != frames:
            roles = "/".join(sorted({m.role for m in messages if m.frames})) or "no"
            raise ModelError(
                f"the model's chat template made {ids.count(self.image_token_id)} places for {frames} frames in "
                f"{roles} messages; use evidence=text, or another protocol"
            )
        return ids
