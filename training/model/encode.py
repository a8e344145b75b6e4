"""Conversations to samples: the token ids that the engine feeds and the model is to say, and its frames as patches.

The ids are built exactly as the engine builds them, turn by turn (`paravt_infer.chat.Chat`), so that what is
learned here is what is met there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paravt_infer.chat import Message
from paravt_infer.model import ModelFiles, load_model_files, load_pretrained
from paravt_infer.video.types import Frame

IGNORED = -100
"""The label of a token that is not learned."""
Turned = Literal["window", "calls", "answer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """What a sample is made from."""

    messages: Sequence[Message]
    """From the system prompt to the last word; the assistant's are learned."""
    stopped: frozenset[int] = frozenset()
    """Numbers of assistant messages that were cut at their end: the token that ends the turn is fed, not learned."""
    tools: list[dict[str, Any]] | None = None
    """Tool schemas for the chat template."""
    kind: str = ""
    """What it is counted as, such as `parallel`."""
    name: str = ""
    """Where it comes from, for messages about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedSpan:
    """An assistant turn's place among a sample's learned tokens."""

    start: int
    end: int
    """Excluded."""
    said: Turned
    """`window` a sub-agent's words, `calls` a turn with calls, `answer` any other."""
    kind: str
    """Its conversation's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedSample:
    """One conversation as tensors."""

    ids: Tensor
    """Frames as so many ids as they have visual tokens.  # [tokens]"""
    labels: Tensor
    """The same ids where they are learned, else -100.  # [tokens]"""
    positions: Tensor
    """Time, height and width for the rotary embedding, from 0.  # [3, tokens]"""
    mm_token_type_ids: Tensor
    """1 where a visual token stands.  # [tokens]"""
    pixel_values: Tensor
    """Patches of all frames.  # [patches, channels * 2 * patch * patch]"""
    image_grid_thw: Tensor
    """Patches of each frame: 1, down, across.  # [frames, 3]"""
    spans: tuple[LearnedSpan, ...] = field(default=())
    """The learned turns."""
    behaviour: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Log-probabilities of the learned tokens when they were sampled; none in supervised samples.  # [learned]"""
    advantages: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Of the learned tokens' episode; none likewise.  # [learned]"""
    fresh: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    """Whether the weights that sampled it are those that learn; none likewise.  # [learned]"""

    def __len__(self) -> int:
        return int(self.ids.shape[0])


class Encoder:
    """Makes samples for one model.

    Args:
        model: folder or hub id of a Qwen-VL checkpoint; its weights are not read.

    Raises:
        ModelError: the model's files cannot be had.
    """

    def __init__(self, model: str):
        self.files: ModelFiles = load_model_files(model)
        self.chat = self.files.chat
        self._rope: Callable[..., tuple[Tensor, Tensor]] = _rope_index(model)
        processor = self.files.image_processor
        self.patch, self.merge = int(processor.patch_size), int(processor.merge_size)
        self._mean = np.asarray(processor.image_mean, np.float32) * 255
        self._std = np.asarray(processor.image_std, np.float32) * 255
        self._thick = int(processor.temporal_patch_size)

    def encode(self, conversation: Conversation) -> EncodedSample:
        """The sample of a conversation.

        Raises:
            ModelError: the chat template cannot hold it.
        """
        chat = self.chat
        end = [chat.tokenizer.eos_token_id]
        ids: list[int] = []
        learned: list[bool] = []
        spans: list[LearnedSpan] = []
        waiting: list[Message] = []
        output: list[int] = []
        for number, message in enumerate(conversation.messages):
            if message.role != "assistant":
                waiting.append(message)
                continue
            fed = (
                chat.encode_continuation(output, waiting)
                if ids
                else chat.encode_start(waiting, tools=conversation.tools)
            )
            output = chat.encode_text(message.text) + (end if number not in conversation.stopped else [])
            before = sum(learned)
            ids += fed + output
            learned += [False] * len(fed) + [True] * len(output)
            said = _what(conversation.kind, message.text)
            spans.append(LearnedSpan(start=before, end=before + len(output), said=said, kind=conversation.kind))
            waiting = []
        frames = [frame for message in conversation.messages for frame in message.frames]
        frames = frames[: ids.count(chat.image_token_id)]  # those after the last learned turn are not fed
        return self.sample(ids, learned, frames, tuple(spans))

    def sample(
        self, ids: Sequence[int], learned: Sequence[bool], frames: Sequence[Frame], spans: tuple[LearnedSpan, ...] = ()
    ) -> EncodedSample:
        """A sample of token ids as the engine records them.

        Args:
            ids: each frame as one placeholder.
            learned: which of `ids` are learned; never a placeholder.
            frames: one for each placeholder, in their order.
        """
        image = self.chat.image_token_id
        ids_, learned_ = np.array(ids, np.int64), np.array(learned, bool)
        repeats = np.ones(len(ids), np.int64)
        repeats[ids_ == image] = [self.files.visual_tokens(frame) for frame in frames]
        expanded, said = torch.from_numpy(ids_.repeat(repeats)), torch.from_numpy(learned_.repeat(repeats))
        grid = torch.tensor(
            [[1, frame.height // self.patch, frame.width // self.patch] for frame in frames], dtype=torch.long
        ).reshape(-1, 3)
        types = (expanded == image).to(torch.int32)
        positions, _ = self._rope(
            input_ids=expanded[None], mm_token_type_ids=types[None], image_grid_thw=grid if len(frames) else None
        )
        return EncodedSample(
            ids=expanded,
            labels=torch.where(said, expanded, IGNORED),
            positions=positions[:, 0],
            mm_token_type_ids=types,
            pixel_values=self.patches([frame.pixels for frame in frames]),
            image_grid_thw=grid,
            spans=spans,
        )

    def patches(self, pictures: Sequence[NDArray[np.uint8]]) -> Tensor:
        """Pictures as the model's image processor hands them on, in a fraction of its time.

        Args:
            pictures: RGB, sides multiples of patch times merge size.  # [height, width, 3] each

        Returns:
            Their patches.  # [patches, channels * thick * patch * patch]
        """
        if not pictures:
            return torch.zeros(0, 3 * self._thick * self.patch**2)
        alike = len({picture.shape for picture in pictures}) == 1
        stacks = [np.stack(pictures)] if alike else [picture[None] for picture in pictures]
        return torch.cat([self._patches(stack) for stack in stacks])

    def _patches(self, stack: NDArray[np.uint8]) -> Tensor:
        """Pictures of one size.  # [pictures, height, width, 3]"""
        count, height, width, channels = stack.shape
        patch, merge, thick = self.patch, self.merge, self._thick
        scaled = torch.from_numpy((stack.astype(np.float32) - self._mean) / self._std)
        rows, columns = height // patch // merge, width // patch // merge
        tiles = scaled.reshape(count, rows, merge, patch, columns, merge, patch, channels)
        # Patches of one visual token stand together; each holds the still picture `thick` times.
        tiles = tiles.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(-1, channels, 1, patch, patch)
        return tiles.expand(-1, -1, thick, -1, -1).reshape(-1, channels * thick * patch * patch)


def _what(kind: str, text: str) -> Turned:
    if kind in ("perception", "caption"):
        return "window"
    return "calls" if "<tool_call>" in text or "<tool_code>" in text else "answer"


def _rope_index(model: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """The model's own rule for positions, without its weights."""
    from transformers import AutoModelForImageTextToText

    config = load_pretrained(model, "AutoConfig")
    with torch.device("meta"):
        bare = AutoModelForImageTextToText.from_config(config)
    rule: Callable[..., tuple[Tensor, Tensor]] = bare.model.get_rope_index
    return rule
