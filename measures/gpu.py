"""A step of SFT and of GRPO in the real shapes with random weights, compared with what the plan predicts.

``python -m measures.gpu`` is to take under five minutes on one GPU of 141 GB; under torchrun the model is in
shards. Where AdamW's moments do not fit, the step is made with plain SGD, the prediction leaves them out, and the
table says so. ``--only-plan`` prints the prediction without a GPU; ``--sizes mini`` runs on a CPU.
"""

import argparse
import time
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch

from measures.machine import describe_machine, markdown_table
from paravt_infer.settings import Settings
from paravt_training.grpo.objective import ObjectiveConfig, token_loss
from paravt_training.model.attention import use_packed_attention
from paravt_training.model.distributed import (
    DistributedContext,
    clip_gradients,
    init_distributed,
    shard,
    shutdown_distributed,
)
from paravt_training.model.packing import Learner, PackedRow, supervised_loss
from paravt_training.plan.estimate import GPUS, Estimate, training_memory
from paravt_training.plan.sizes import ModelSizes, RolloutSizes, RunSizes, load_config, published
from paravt_training.recipe import MINI, MiniShape

FRAMES = 32
"""Frames of a row, 224 x 224 pixels each."""
SAMPLES = 4
LEARNED = 0.25
"""The share of a row's tokens that are learned."""
STEPS = 3
"""The first of them warms up and is not timed."""


def row_of(config: Any, tokens: int, distributed: DistributedContext) -> PackedRow:
    """A row of `tokens` tokens in `SAMPLES` samples: random text tokens, and frames where a real row has them."""
    vision = config.vision_config
    side = 224 // vision.patch_size // vision.spatial_merge_size * vision.spatial_merge_size
    visual = (side // vision.spatial_merge_size) ** 2
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 1000 if config.text_config.vocab_size > 1000 else 300, (tokens,), generator=draw)
    each = tokens // SAMPLES
    for number in range(FRAMES):
        start = (number % SAMPLES) * each + (number // SAMPLES) * (visual + 10)
        ids[start : start + visual] = config.image_token_id
    words = (ids != config.image_token_id).nonzero()[:, 0]
    positions = words[words % each != each - 1][-int(tokens * LEARNED) :]
    features = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return PackedRow(
        ids=ids,
        positions=torch.arange(tokens).remainder(each).expand(3, -1).contiguous(),
        cu_seqlens=torch.arange(0, tokens + 1, each, dtype=torch.int32),
        pixel_values=torch.randn(FRAMES * side * side, features, generator=draw),
        image_grid_thw=torch.tensor([[1, side, side]] * FRAMES),
        logit_positions=positions,
        targets=ids[(positions + 1).remainder(tokens)].clamp(max=999),
        behaviour=torch.full((len(positions),), -5.0),
        advantages=torch.randn(len(positions), generator=draw),
        fresh=torch.ones(len(positions), dtype=torch.bool),
    ).to(distributed.device)


def network(config: Any, distributed: DistributedContext, *, bf16: bool) -> Learner:
    """Random weights in fp32, in shards where there is a process group."""
    from transformers import Qwen3VLForConditionalGeneration

    with distributed.device:
        model = Qwen3VLForConditionalGeneration(deepcopy(config))  # attention is set in it
    use_packed_attention(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    learner = Learner(model)
    if distributed.sharded:
        shard(learner, distributed, "bf16" if bf16 else "fp32")
    learner.train()
    return learner


def measure(size: str, kind: str, tokens: int, distributed: DistributedContext, *, gpu: str) -> list[str]:
    """One line of the table: what a step took."""
    config = _config(size)
    bf16 = distributed.device.type == "cuda"
    shape = shape_of(size, kind, tokens, distributed.world_size, bf16=bf16)
    predicted = training_memory(shape)
    moments = _gigabytes([line for line in predicted if line.name == "AdamW moments"])
    total = _gigabytes(predicted)
    adam = total < GPUS[gpu].memory / 1e9 * 0.95 or distributed.device.type != "cuda"
    learner = network(config, distributed, bf16=bf16)
    reference = network(config, distributed, bf16=bf16).requires_grad_(False).eval() if kind == "GRPO" else None
    optimiser: Any = (
        torch.optim.AdamW(learner.parameters(), lr=1e-6, fused=True)
        if adam
        else torch.optim.SGD(learner.parameters(), lr=1e-6)
    )
    row = row_of(config, tokens, distributed)
    if distributed.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(STEPS):
        began = time.monotonic()
        _step(learner, reference, row)
        clip_gradients(learner.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if distributed.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.monotonic() - began)
    used = torch.cuda.max_memory_allocated() / 1e9 if distributed.device.type == "cuda" else float("nan")
    speed = tokens * distributed.world_size / min(seconds[1:])
    return [
        *(size, kind, "AdamW" if adam else "SGD (moments do not fit)", f"{total - (0 if adam else moments):.1f}"),
        *(f"{used:.1f}", f"{speed:,.0f}", f"{min(seconds[1:]):.2f}"),
    ]


def _step(learner: Learner, reference: Learner | None, row: PackedRow) -> None:
    if reference is None:
        loss, _ = supervised_loss(learner, row)
        (loss / len(row.targets)).backward()
        return
    with torch.no_grad():
        fixed = _logprobs(reference(row)[0], row)
    logits, zero = learner(row)
    mask = torch.ones_like(row.targets, dtype=torch.bool)
    loss, _ = token_loss(
        _logprobs(logits, row),
        behaviour=row.behaviour,
        advantages=row.advantages,
        mask=mask,
        config=ObjectiveConfig(),
        reference=fixed,
    )
    (loss / len(row.targets) + zero).backward()


def _logprobs(logits: torch.Tensor, row: PackedRow) -> torch.Tensor:
    chosen: torch.Tensor = (logits / 0.7).log_softmax(-1).gather(-1, row.targets[:, None])[:, 0]
    return chosen


def _config(size: str) -> Any:
    return load_config(MINI, MiniShape(), 64) if size == MINI else published(size)


def shape_of(size: str, kind: str, tokens: int, gpus: int, *, bf16: bool = True) -> RunSizes:
    """What the plan is asked about."""
    model = ModelSizes.from_config(_config(size), size)
    sampling = RolloutSizes(gpus=1, concurrency=64, reference=True, sub_agents=True, settings=Settings())
    supervised = RunSizes(
        model=model,
        gpus=gpus,
        row_tokens=tokens,
        gradient_checkpointing=True,
        bf16=bf16,
        samples=SAMPLES,
        frame_tokens=49,
        budgets=(FRAMES // SAMPLES,),
    )
    return replace(supervised, sampling=sampling) if kind == "GRPO" else supervised


def _gigabytes(lines: list[Estimate]) -> float:
    return sum(line.value for line in lines) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", nargs="*", default=["2B", "8B"], help="2B, 4B, 8B or mini")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens in each packed row")
    parser.add_argument("--gpu", default="h200", help="the GPU to predict for: a100, h100 or h200")
    parser.add_argument("--only-plan", action="store_true", help="print the predicted memory and run nothing")
    options = parser.parse_args()
    if options.only_plan:
        rows = [
            [size, kind, f"{_gigabytes(training_memory(shape_of(size, kind, options.tokens, 1))):.1f}"]
            for size in options.sizes
            for kind in ("SFT", "GRPO")
        ]
        print(markdown_table(["shape", "step", "GB predicted, one GPU, AdamW"], rows))
        return
    distributed = init_distributed()
    try:
        rows = []
        for size in options.sizes:
            for kind in ("SFT", "GRPO"):
                rows.append(measure(size, kind, options.tokens, distributed, gpu=options.gpu))
                if distributed.device.type == "cuda":
                    torch.cuda.empty_cache()
        if distributed.is_main:
            head = ["shape", "step", "optimiser", "GB predicted", "GB used", "tokens/s", "s per step"]
            here = describe_machine("torch", "transformers")
            print(f"{here}; {distributed.world_size} processes, rows of {options.tokens} tokens\n")
            print(markdown_table(head, rows))
    finally:
        shutdown_distributed()


if __name__ == "__main__":
    main()
