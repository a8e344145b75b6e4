"""Packed rows: each sample as if it were alone, and a vision tower that takes part in every pass."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from paravt_infer.model import load_pretrained
from paravt_training.data.sources import WorldSource
from paravt_training.model.attention import attend, use_packed_attention
from paravt_training.model.encode import IGNORED, EncodedSample, Encoder
from paravt_training.model.packing import Learner, join, pack, padding_row, supervised_loss
from paravt_training.recipe import TraceMix, WorldData


@pytest.fixture(scope="module")
def samples(start: Path) -> list[EncodedSample]:
    encoder = Encoder(str(start))
    world = WorldSource(WorldData(kind="world"))
    return [encoder.encode(world.conversation(number, TraceMix(budgets=[4, 8]))) for number in range(8)]


@pytest.fixture(scope="module")
def plain(start: Path) -> Any:
    """The model as transformers has it."""
    return load_pretrained(str(start), "AutoModelForImageTextToText", dtype=torch.float32).eval()


@pytest.fixture
def learner(start: Path) -> Learner:
    model = load_pretrained(str(start), "AutoModelForImageTextToText", dtype=torch.float32)
    use_packed_attention(model)
    return Learner(model)


def test_packed_samples_have_the_logits_of_each_alone(
    samples: list[EncodedSample], plain: Any, learner: Learner
) -> None:
    row = join(samples)
    with torch.no_grad():
        packed = learner.model(
            input_ids=row.ids[None],
            position_ids=row.positions[:, None],
            pixel_values=row.pixel_values,
            image_grid_thw=row.image_grid_thw,
            row_cu_seqlens=row.cu_seqlens,
            use_cache=False,
        ).logits[0]
        loss = 0.0
        for sample, logits in zip(samples, packed.split([len(one) for one in samples]), strict=True):
            # Alone, by transformers' own attention and positions.
            alone = plain(
                input_ids=sample.ids[None],
                mm_token_type_ids=(sample.ids == plain.config.image_token_id).int()[None],
                pixel_values=sample.pixel_values,
                image_grid_thw=sample.image_grid_thw,
                use_cache=False,
            ).logits[0]
            torch.testing.assert_close(logits, alone, atol=1e-5, rtol=1e-5)
            loss += float(cross_entropy(alone[:-1], sample.labels[1:], ignore_index=IGNORED, reduction="sum"))
        total, said = supervised_loss(learner, row)
    assert float(total) == pytest.approx(loss, rel=1e-5)
    assert torch.equal(said, packed[row.logit_positions].argmax(-1)) and torch.equal(
        row.targets, row.ids[row.logit_positions + 1]
    )


def test_a_change_in_one_sample_changes_no_other(samples: list[EncodedSample], learner: Learner) -> None:
    row, other = join(samples[:3]), join([samples[0], samples[3], samples[2]])
    first, last = len(samples[0]), len(samples[2])
    with torch.no_grad():
        hidden = [
            learner.model.model(
                input_ids=one.ids[None], position_ids=one.positions[:, None], pixel_values=one.pixel_values,
                image_grid_thw=one.image_grid_thw, row_cu_seqlens=one.cu_seqlens, use_cache=False,
            )[0][0]
            for one in (row, other)
        ]  # fmt: skip
    torch.testing.assert_close(hidden[0][:first], hidden[1][:first], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(hidden[0][-last:], hidden[1][-last:], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [[5, 5, 5], [1, 7, 3]])
def test_attention_is_that_of_a_mask_of_blocks(lengths: list[int], causal: bool) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 15, 8), torch.randn(1, 2, 15, 8), torch.randn(1, 2, 15, 8)
    query, key, value = (one[:, :, : sum(lengths)] for one in (query, key, value))
    mask = torch.block_diag(*(torch.ones(n, n) for n in lengths)).bool()
    mask = mask.tril() if causal else mask
    right = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=0.3, enable_gqa=True)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    out = attend(query, key, value, cu_seqlens, scale=0.3, causal=causal)
    torch.testing.assert_close(out, right.transpose(1, 2))


def test_rows_hold_all_samples_and_no_more_than_they_may(samples: list[EncodedSample]) -> None:
    longest = max(map(len, samples))
    rows = pack(samples, longest)
    assert all(len(row.ids) <= longest for row in rows)
    assert sum(len(row.cu_seqlens) - 1 for row in rows) == len(samples)
    assert sum(len(row.targets) for row in rows) == sum(int((s.labels != IGNORED).sum()) for s in samples)
    assert len(pack(samples, 10**6)) == 1
    with pytest.raises(ValueError, match=f"{longest} tokens does not fit into a row of {longest - 1}"):
        pack(samples, longest - 1)


def test_the_vision_tower_takes_part_where_there_is_no_frame(samples: list[EncodedSample], learner: Learner) -> None:
    visual = list(learner.model.model.visual.named_parameters())
    assert any("deepstack" in name for name, _ in visual)
    loss, said = supervised_loss(learner, padding_row(1, samples[0].pixel_values.shape[1]))
    loss.backward()
    assert float(loss.detach()) == 0 and said.shape == (0,)
    assert all(p.grad is not None and not p.grad.any() for _, p in visual)
    loss, _ = supervised_loss(learner, join(samples[:1]))
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for _, p in visual)


def test_gradient_checkpointing_changes_no_gradient(samples: list[EncodedSample], learner: Learner) -> None:
    row, gradients = join(samples[:2]), []
    learner.train()
    for recompute in (False, True):
        if recompute:
            learner.model.gradient_checkpointing_enable({"use_reentrant": False})
        learner.zero_grad()
        supervised_loss(learner, row)[0].backward()
        gradients.append([p.grad.clone() for p in learner.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) == len(list(learner.parameters()))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
