"""Samples packed into rows, and the network that learns from a row.

Each sample keeps its own positions and attends to itself alone (`paravt_training.model.attention`), so that a packed
row gives the logits of each sample alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paravt_training.model.encode import IGNORED, EncodedSample, LearnedSpan


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRow:
    """Samples one after the other: one forward pass."""

    ids: Tensor
    """# [tokens]"""
    positions: Tensor
    """# [3, tokens]"""
    borders: Tensor
    """Where samples start, and the end.  # [samples + 1], int32"""
    pixel_values: Tensor
    """# [patches, patch features]"""
    image_grid_thw: Tensor
    """# [frames, 3]"""
    places: Tensor
    """Tokens whose next one is learned.  # [learned]"""
    targets: Tensor
    """Those next ones.  # [learned]"""
    spans: tuple[LearnedSpan, ...] = ()
    """Learned turns, as places among `targets`."""
    behaviour: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Log-probabilities of `targets` when they were sampled; none in supervised rows.  # [learned]"""
    advantages: Tensor = field(default_factory=lambda: torch.zeros(0))
    """How much better than its group's an episode went, for each of `targets`; none likewise.  # [learned]"""
    fresh: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    """Whether the weights that sampled it are those that learn; none likewise.  # [learned]"""

    def to(self, device: torch.device) -> "PackedRow":
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "spans"}
        return replace(self, **{name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()})


def pack(samples: Iterable[EncodedSample], row_tokens: int) -> list[PackedRow]:
    """Rows of at most `row_tokens` tokens that hold all samples, longest first into the first row with room.

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
    """One row of these samples, in this order."""
    labels = torch.cat([sample.labels for sample in samples])
    lengths = torch.tensor([0, *map(len, samples)])
    learned = (labels != IGNORED).nonzero()[:, 0]
    spans, before = [], 0
    for sample in samples:
        spans += [replace(span, start=span.start + before, end=span.end + before) for span in sample.spans]
        before += int((sample.labels != IGNORED).sum())
    return PackedRow(
        ids=torch.cat([sample.ids for sample in samples]),
        positions=torch.cat([sample.positions for sample in samples], dim=1),
        borders=lengths.cumsum(0).to(torch.int32),
        pixel_values=torch.cat([sample.pixel_values for sample in samples]),
        image_grid_thw=torch.cat([sample.image_grid_thw for sample in samples]),
        places=learned - 1,
        targets=labels[learned],
        spans=tuple(spans),
        behaviour=torch.cat([sample.behaviour for sample in samples]),
        advantages=torch.cat([sample.advantages for sample in samples]),
        fresh=torch.cat([sample.fresh for sample in samples]),
    )


def empty_row(end_id: int, features: int) -> PackedRow:
    """A row that teaches nothing: for a process that has fewer rows than the others."""
    none = torch.zeros(0, dtype=torch.long)
    return PackedRow(
        ids=torch.tensor([end_id]),
        positions=torch.zeros(3, 1, dtype=torch.long),
        borders=torch.tensor([0, 1], dtype=torch.int32),
        pixel_values=torch.zeros(0, features),
        image_grid_thw=torch.zeros(0, 3, dtype=torch.long),
        places=none,
        targets=none,
    )


class Learner(nn.Module):  # type: ignore[misc]
    """A Qwen3-VL model that reads packed rows.

    The vision tower, deepstack features included, takes part in every pass: where a row has no frame it looks at
    a blank one, whose gradient is zero. Otherwise processes that shard the model wait for each other for ever.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, row: PackedRow) -> tuple[Tensor, Tensor]:
        """What a row's learned tokens are predicted from.

        Returns:
            Logits in fp32, and a zero that has to be added to any loss of them.  # [learned, vocabulary], []
        """
        seen = len(row.image_grid_thw) > 0
        # Before the text layers, as a true frame is: all processes must gather the shards in one order.
        blank = torch.zeros((), device=row.ids.device) if seen else self._blank(row)
        out = self.model(
            input_ids=row.ids[None],
            position_ids=row.positions[:, None],
            pixel_values=row.pixel_values if seen else None,
            image_grid_thw=row.image_grid_thw if seen else None,
            logits_to_keep=row.places,
            borders=row.borders,
            use_cache=False,
        )
        return out.logits[0].float(), blank

    def _blank(self, row: PackedRow) -> Tensor:
        """Zero, made from all that the vision tower makes of a blank frame."""
        merge = self.model.config.vision_config.spatial_merge_size
        grid = torch.tensor([[1, merge, merge]], device=row.ids.device)
        pixels = row.pixel_values.new_zeros(merge * merge, row.pixel_values.shape[1])
        looked = self.model.model.get_image_features(pixels, grid, return_dict=True)
        features = [*looked.pooler_output, *(one for layer in looked.deepstack_features for one in layer)]
        return sum((one.float().sum() for one in features), torch.zeros((), device=row.ids.device)) * 0


def supervised_loss(learner: Learner, row: PackedRow) -> tuple[Tensor, Tensor]:
    """The cross entropy of a row's learned tokens, summed, and what would be said in their place.

    Returns:
        A scalar in fp32, and ids.  # [], [learned]
    """
    logits, zero = learner(row)
    return cross_entropy(logits, row.targets, reduction="sum") + zero, logits.detach().argmax(-1)
