"""Packs samples into rows, and the model's forward pass over a row.

Each sample keeps its own positions and attends only to itself (`paravt_training.model.attention`), so that its logits
are those it would have alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paravt_training.model.distributed import DistributedContext
from paravt_training.model.encode import IGNORED, EncodedSample, TokenTensors


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRow(TokenTensors):
    """Concatenated samples: one forward pass."""

    cu_seqlens: Tensor
    """Cumulative lengths: where each sample starts, and the end of the last.  # [samples + 1], int32"""
    logit_positions: Tensor
    """Positions whose logits predict a learned token.  # [learned]"""
    targets: Tensor
    """The learned tokens.  # [learned]"""

    def to(self, device: torch.device) -> "PackedRow":
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "spans"}
        return replace(self, **{name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()})


def pack(samples: Iterable[EncodedSample], row_tokens: int) -> list[PackedRow]:
    """Pack all samples into rows of at most `row_tokens` tokens: first fit, longest sample first.

    Raises:
        ValueError: a sample is longer than a row.
    """
    rows: list[list[EncodedSample]] = []
    for sample in sorted(samples, key=len, reverse=True):
        if len(sample) > row_tokens:
            raise ValueError(f"a sample of {len(sample)} tokens does not fit into a row of {row_tokens}")
        for row in rows:
            if sum(map(len, row)) + len(sample) <= row_tokens:
                row.append(sample)
                break
        else:
            rows.append([sample])
    return [join(row) for row in rows]


def join(samples: Sequence[EncodedSample]) -> PackedRow:
    """One row of the samples, in order."""
    labels = torch.cat([sample.labels for sample in samples])
    lengths = torch.tensor([0, *map(len, samples)])
    learned = (labels != IGNORED).nonzero()[:, 0]
    spans, before = [], 0
    for sample in samples:
        spans += [replace(span, start=span.start + before, end=span.end + before) for span in sample.spans]
        before += int((sample.labels != IGNORED).sum())
    names = ("ids", "pixel_values", "image_grid_thw", "behaviour", "advantages", "fresh")
    return PackedRow(
        **{name: torch.cat([getattr(sample, name) for sample in samples]) for name in names},
        positions=torch.cat([sample.positions for sample in samples], dim=1),
        cu_seqlens=lengths.cumsum(0).to(torch.int32),
        logit_positions=learned - 1,
        targets=labels[learned],
        spans=tuple(spans),
    )


def padding_row(token: int, patch_features: int) -> PackedRow:
    """A row without learned tokens, for a process that has fewer rows than the others.

    Args:
        token: its only token.
    """
    empty = torch.zeros(0, dtype=torch.long)
    return PackedRow(
        ids=torch.tensor([token]),
        positions=torch.zeros(3, 1, dtype=torch.long),
        cu_seqlens=torch.tensor([0, 1], dtype=torch.int32),
        pixel_values=torch.zeros(0, patch_features),
        image_grid_thw=torch.zeros(0, 3, dtype=torch.long),
        logit_positions=empty,
        targets=empty,
    )


def padded_rows(
    rows: Sequence[PackedRow], padding: PackedRow, distributed: DistributedContext, *, minimum: int = 0
) -> Iterator[PackedRow]:
    """This process's rows on its device, then padding until every process has had the same number of rows.

    Processes that share a sharded model must make the same number of forward passes.

    Args:
        minimum: of rows, so that there is a gradient even where no process has a row.
    """
    for index in range(max(minimum, int(distributed.max(len(rows))))):
        yield (rows[index] if index < len(rows) else padding).to(distributed.device)


class Learner(nn.Module):  # type: ignore[misc]
    """A Qwen3-VL model whose input is a packed row.

    The vision tower, deepstack features included, takes part in every pass: a row without frames passes it a blank
    one, whose gradient is zero. Otherwise processes that share a sharded model would deadlock.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, row: PackedRow) -> tuple[Tensor, Tensor]:
        """The logits that predict a row's learned tokens.

        Returns:
            Logits in fp32, and a zero that must be added to any loss of them.  # [learned, vocabulary], []
        """
        has_frames = len(row.image_grid_thw) > 0
        # Before the text layers, where real frames are encoded: all processes must gather shards in the same order.
        zero = torch.zeros((), device=row.ids.device) if has_frames else self._encode_blank(row)
        out = self.model(
            input_ids=row.ids[None],
            position_ids=row.positions[:, None],
            pixel_values=row.pixel_values if has_frames else None,
            image_grid_thw=row.image_grid_thw if has_frames else None,
            logits_to_keep=row.logit_positions,
            row_cu_seqlens=row.cu_seqlens,
            use_cache=False,
        )
        return out.logits[0].float(), zero

    def _encode_blank(self, row: PackedRow) -> Tensor:
        """Zero, computed from all outputs of the vision tower for a blank frame."""
        merge = self.model.config.vision_config.spatial_merge_size
        grid = torch.tensor([[1, merge, merge]], device=row.ids.device)
        pixels = row.pixel_values.new_zeros(merge * merge, row.pixel_values.shape[1])
        encoded = self.model.model.get_image_features(pixels, grid, return_dict=True)
        features = [*encoded.pooler_output, *(feature for layer in encoded.deepstack_features for feature in layer)]
        return sum((feature.float().sum() for feature in features), torch.zeros((), device=row.ids.device)) * 0


def supervised_loss(learner: Learner, row: PackedRow) -> tuple[Tensor, Tensor]:
    """The summed cross entropy of a row's learned tokens, and the tokens that greedy decoding would predict.

    Returns:
        A scalar in fp32, and token ids.  # [], [learned]
    """
    logits, zero = learner(row)
    return cross_entropy(logits, row.targets, reduction="sum") + zero, logits.detach().argmax(-1)
