"""Encodes conversations as training samples: token ids, labels, rotary positions, and frames as patches.

The ids are built turn by turn exactly as the engine builds them (`paravt_infer.chat.ChatTemplate`), so that training
and inference see the same contexts.
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
TurnKind = Literal["window", "calls", "answer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """Messages to learn from, before they are encoded."""

    messages: Sequence[Message]
    """From the system prompt to the last turn; the assistant's are learned."""
    stopped: frozenset[int] = frozenset()
    """Indices of assistant messages that a stop text ended: the token that ends the turn is fed, not learned."""
    tools: list[dict[str, Any]] | None = None
    """Tool schemas for the chat template."""
    kind: str = ""
    """The kind of trace for metrics, such as `parallel`."""
    name: str = ""
    """Its source, for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedSpan:
    """The range of an assistant turn in the learned tokens of a sample."""

    start: int
    end: int
    """Exclusive."""
    turn: TurnKind
    """`window`: a sub-agent's response; `calls`: a turn with tool calls; `answer`: any other turn."""
    kind: str
    """The conversation's kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTensors:
    """What an encoded sample and a packed row of samples have in common; `learned` counts learned tokens."""

    ids: Tensor
    """A frame has as many placeholder ids as visual tokens.  # [tokens]"""
    positions: Tensor
    """Time, height and width for the rotary embedding; each sample's start at 0.  # [3, tokens]"""
    pixel_values: Tensor
    """Patches of all frames.  # [patches, Encoder.patch_features]"""
    image_grid_thw: Tensor
    """Patches of each frame: 1, rows, columns.  # [frames, 3]"""
    spans: tuple[LearnedSpan, ...] = ()
    """The learned turns, as ranges of the learned tokens."""
    behaviour: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Log-probabilities of the learned tokens when they were sampled; empty in SFT.  # [learned]"""
    advantages: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Advantages of the learned tokens' episodes over their groups; empty in SFT.  # [learned]"""
    fresh: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    """Whether the current weights sampled the token; empty in SFT.  # [learned]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedSample(TokenTensors):
    """One conversation as tensors."""

    labels: Tensor
    """`ids` where they are learned, -100 elsewhere.  # [tokens]"""

    def __len__(self) -> int:
        return int(self.ids.shape[0])


class Encoder:
    """Encodes conversations for one model.

    Args:
        model: folder or hub id of a Qwen-VL checkpoint; its weights are not loaded.

    Raises:
        ModelError: could not load the model's files.
    """

    def __init__(self, model: str):
        self.files: ModelFiles = load_model_files(model)
        self.chat = self.files.chat
        self._rope_index: Callable[..., tuple[Tensor, Tensor]] = _rope_index(model)
        processor = self.files.image_processor
        self.patch, self.merge = int(processor.patch_size), int(processor.merge_size)
        self._mean = np.asarray(processor.image_mean, np.float32) * 255
        self._std = np.asarray(processor.image_std, np.float32) * 255
        self.temporal_patch = int(processor.temporal_patch_size)

    def encode(self, conversation: Conversation) -> EncodedSample:
        """Encode a conversation.

        Raises:
            ModelError: the chat template cannot render it.
        """
        chat = self.chat
        end = [chat.tokenizer.eos_token_id]
        ids: list[int] = []
        learned: list[bool] = []
        spans: list[LearnedSpan] = []
        pending: list[Message] = []
        output: list[int] = []
        for number, message in enumerate(conversation.messages):
            if message.role != "assistant":
                pending.append(message)
                continue
            fed = (
                chat.encode_continuation(output, pending)
                if ids
                else chat.encode_start(pending, tools=conversation.tools)
            )
            output = chat.encode_text(message.text) + (end if number not in conversation.stopped else [])
            before = sum(learned)
            ids += fed + output
            learned += [False] * len(fed) + [True] * len(output)
            turn = _turn_kind(conversation.kind, message.text)
            spans.append(LearnedSpan(start=before, end=before + len(output), turn=turn, kind=conversation.kind))
            pending = []
        frames = [frame for message in conversation.messages for frame in message.frames]
        frames = frames[: ids.count(chat.image_token_id)]  # frames after the last learned turn are not fed
        return self.sample(ids, learned, frames, tuple(spans))

    def sample(
        self, ids: Sequence[int], learned: Sequence[bool], frames: Sequence[Frame], spans: tuple[LearnedSpan, ...] = ()
    ) -> EncodedSample:
        """Encode token ids as the engine records them.

        Args:
            ids: with one placeholder per frame.
            learned: which of `ids` are learned; never a placeholder.
            frames: one per placeholder, in order.
        """
        image = self.chat.image_token_id
        ids_, learned_ = np.array(ids, np.int64), np.array(learned, bool)
        repeats = np.ones(len(ids), np.int64)
        repeats[ids_ == image] = [self.files.visual_tokens(frame) for frame in frames]
        expanded = torch.from_numpy(ids_.repeat(repeats))
        is_learned = torch.from_numpy(learned_.repeat(repeats))
        grid = torch.tensor(
            [[1, frame.height // self.patch, frame.width // self.patch] for frame in frames], dtype=torch.long
        ).reshape(-1, 3)
        types = (expanded == image).to(torch.int32)
        positions, _ = self._rope_index(
            input_ids=expanded[None], mm_token_type_ids=types[None], image_grid_thw=grid if len(frames) else None
        )
        return EncodedSample(
            ids=expanded,
            labels=torch.where(is_learned, expanded, IGNORED),
            positions=positions[:, 0],
            pixel_values=self.patches([frame.pixels for frame in frames]),
            image_grid_thw=grid,
            spans=spans,
        )

    @property
    def patch_features(self) -> int:
        """Numbers per patch: channels * temporal patch * patch * patch."""
        return 3 * self.temporal_patch * self.patch**2

    def patches(self, images: Sequence[NDArray[np.uint8]]) -> Tensor:
        """The output of the model's image processor, in a fraction of its time.

        Args:
            images: RGB, sides multiples of patch times merge size.  # [height, width, 3] each

        Returns:
            Their patches.  # [patches, patch_features]
        """
        if not images:
            return torch.zeros(0, self.patch_features)
        same_size = len({image.shape for image in images}) == 1
        stacks = [np.stack(images)] if same_size else [image[None] for image in images]
        return torch.cat([self._patches(stack) for stack in stacks])

    def _patches(self, stack: NDArray[np.uint8]) -> Tensor:
        """Patches of images of one size.  # [images, height, width, 3]"""
        count, height, width, channels = stack.shape
        patch, merge = self.patch, self.merge
        scaled = torch.from_numpy((stack.astype(np.float32) - self._mean) / self._std)
        rows, columns = height // patch // merge, width // patch // merge
        tiles = scaled.reshape(count, rows, merge, patch, columns, merge, patch, channels)
        # The patches of a visual token are adjacent; each holds the still image `temporal_patch` times.
        tiles = tiles.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(-1, channels, 1, patch, patch)
        return tiles.expand(-1, -1, self.temporal_patch, -1, -1).reshape(-1, self.patch_features)


def _turn_kind(kind: str, text: str) -> TurnKind:
    if kind in ("perception", "caption"):
        return "window"
    return "calls" if "<tool_call>" in text or "<tool_code>" in text else "answer"


def _rope_index(model: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """The model's own function for rotary positions, without its weights."""
    from transformers import AutoModelForImageTextToText

    config = load_pretrained(model, "AutoConfig")
    with torch.device("meta"):
        model_on_meta = AutoModelForImageTextToText.from_config(config)
    rope_index: Callable[..., tuple[Tensor, Tensor]] = model_on_meta.model.get_rope_index
    return rope_index
