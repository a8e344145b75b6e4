"""What a training run needs, told before a model is loaded: parameters, memory a GPU, tokens a step, shares of time.

Parameters are exact; the rest is estimated, and each line says how.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from statistics import mean
from typing import Any

from paravt_infer.errors import SettingsError
from paravt_training.plan.sizes import CALLS, FRAME_WORDS, RunSizes, SampleTokens, sample_tokens

LEARNED_MOST = 0.25
"""The part of a supervised row that is learned; the rest is frames."""
COMPUTED, READ = 0.4, 0.6
"""The parts of a GPU's arithmetic and of its memory's bandwidth that are taken for reachable."""
LOGIT = 12
"""Bytes a learned token and word: log-probabilities, and two gradients of them at once, in fp32."""
SERVER = 0.15
"""The part of a rollout GPU that the server keeps for its own work, beside weights and KV cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A kind of GPU, by its maker's numbers."""

    name: str
    memory: float
    """Bytes by its name. There are some 6 % more, which CUDA, NCCL and the holes between blocks take."""
    bf16: float
    """FLOP a second, dense."""
    fp32: float
    bandwidth: float
    """Bytes of memory a second."""


GPUS = {
    "a100": Gpu(name="A100 80 GB", memory=80e9, bf16=312e12, fp32=19.5e12, bandwidth=2.04e12),
    "h100": Gpu(name="H100 80 GB", memory=80e9, bf16=989e12, fp32=67e12, bandwidth=3.35e12),
    "h200": Gpu(name="H200 141 GB", memory=141e9, bf16=989e12, fp32=67e12, bandwidth=4.8e12),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One number of a plan."""

    name: str
    value: float
    how: str
    """How it is made, in words."""
    most: float | None = None
    """The most that it can be, where that is another number."""


def training_memory(shape: RunSizes) -> list[Estimate]:
    """Bytes on each GPU that trains, as `model.distributed.shard` splits the model, at a step's worst moment.

    That is the backward pass of the fullest row: one of frames alone or one of learned tokens alone, whichever needs
    more; for a supervised run, one of `LEARNED_MOST` learned tokens.
    """
    model, each, kind = shape.model, *((2, "bf16") if shape.bf16 else (4, "fp32"))
    where = f"split over {shape.gpus} GPUs" if shape.gpus > 1 else "on one GPU"
    layer = model.parameters["text layers"] / model.layers
    root = model.total - model.parameters["text layers"] - model.parameters["vision tower"]
    split = [("weights", 4, "4 bytes (fp32)"), ("gradients", 4, "4 bytes (fp32)"), ("AdamW moments", 8, "2 x 4 bytes")]
    gathered, how = root + 2 * layer, "embeddings, head, mergers and two text layers"
    if shape.sampling and shape.sampling.reference:
        split.append(("reference model", 4, "frozen, 4 bytes (fp32)"))
        gathered, how = gathered + root, f"{how}; the reference's without layers"
    lines = [
        Estimate(name=name, value=size * model.total / shape.gpus, how=f"{said} a parameter, {where}")
        for name, size, said in split
    ]
    lines += [
        Estimate(name="gathered weights", value=each * gathered, how=f"{how}: whole, in {kind}"),
        Estimate(
            name="gathered gradients",
            value=each * (root + layer) + 4 * layer,
            how=f"embeddings, head, mergers and a text layer: whole, in {kind}; that layer's sum in fp32",
        ),
    ]
    seen = shape.frame_tokens / (shape.frame_tokens + FRAME_WORDS)
    parts = [(seen, 0.0), (0.0, 1.0)] if shape.sampling else [(seen * (1 - LEARNED_MOST), LEARNED_MOST)]
    return lines + max((_row_memory(shape, *part) for part in parts), key=_sum)


def _row_memory(shape: RunSizes, visual: float, learned: float) -> list[Estimate]:
    """Bytes that a row keeps for its backward pass, of whose tokens these parts are visual and learned."""
    model, tokens, each = shape.model, shape.row_tokens, 2 if shape.bf16 else 4
    patches, kept = tokens * visual * model.patches, "all that {} layers keep"
    text, tower = tokens * model.layer_bytes(each), patches * model.block_bytes(each)
    last = Estimate(
        name="logits",
        value=tokens * learned * model.vocabulary * LOGIT,
        how=f"{learned:.0%} of a row learned, {LOGIT} bytes for each of {model.vocabulary:,} words",
    )
    if shape.gradient_checkpointing:
        # The logits' gradient is gone before the last layer is computed again: the greater of the two counts.
        again = Estimate(name="layer computed again", value=max(text, tower), how="all that the largest layer keeps")
        last, kept = max(last, again, key=lambda line: line.value), "the inputs of {} layers"
        text, tower = tokens * model.hidden * each, patches * model.block_hidden * each
    how = f"a row of {tokens:,} tokens: {kept.format(model.layers)}"
    how_seen = f"{visual:.0%} of a row visual, {model.patches} patches a token: {kept.format(model.blocks)}"
    return [
        Estimate(name="activations, text", value=text * model.layers, how=how),
        Estimate(name="activations, vision", value=tower * model.blocks, how=how_seen),
        last,
    ]


def _sum(lines: Sequence[Estimate]) -> float:
    return math.fsum(line.value for line in lines)


def rollout_memory(shape: RunSizes, gpu: Gpu) -> list[Estimate]:
    """Bytes on each GPU that makes rollouts; none where a run is supervised."""
    if shape.sampling is None:
        return []
    weights, server, token = 2 * shape.model.total, SERVER * gpu.memory, shape.model.cache_bytes
    left = max(0.0, gpu.memory - weights - server)
    return [
        Estimate(name="weights", value=weights, how="2 bytes a parameter (bf16), whole"),
        Estimate(name="server", value=server, how=f"{SERVER:.0%} for the server's own work"),
        Estimate(
            name="KV cache", value=left, how=f"what is left: {left / token:,.0f} tokens of {token:,} bytes (bf16)"
        ),
    ]


def step_tokens(shape: RunSizes) -> list[Estimate]:
    """Tokens of a sample by what they are, and of a step; the most of them only where the settings say it."""
    frame = f"{shape.frame_tokens} + {FRAME_WORDS} tokens each"
    how = {
        "overview": f"{mean(shape.budgets):.3g} frames, at most {max(shape.budgets)}; {frame}",
        "prompt": "system prompt and question: the paper's estimate",
        "responses": "taken for so many: the data is not read",
    }
    if shape.sampling:
        settings = shape.sampling.settings
        turns, calls = settings.max_tool_turns + 1, settings.max_tool_turns * settings.max_calls
        how["responses"] = f"2 turns, half of {settings.max_new_tokens:,} tokens each; at most {turns}, all"
        windows = f"{settings.window_frames} frames, {frame}"
        if settings.evidence == "frames":
            how["evidence"] = f"{CALLS:g} calls, at most {calls}; for each {windows}"
        else:
            how["evidence"] = f"{CALLS:g} calls, half of {settings.summary_tokens} tokens each; at most {calls}, all"
            how["windows"] = f"for each call a prompt and {windows}"
            how["summaries"] = "the evidence, as sub-agents write it"
    told = tuple(how) if shape.sampling else ("overview",)
    usual, most = sample_tokens(shape), sample_tokens(shape, most=True)
    lines = [
        Estimate(
            name=name, value=getattr(usual, name), most=getattr(most, name) if name in told else None, how=how[name]
        )
        for name in how
    ]
    usual, most = sample_tokens(shape, learned=True), sample_tokens(shape, most=True, learned=True)
    tokens, written = shape.samples * usual.total, shape.samples * usual.written
    samples = f"{shape.samples} {'rollouts' if shape.sampling else 'conversations'}"
    samples += ", sub-agents too" if usual.windows else ""
    return [
        *lines,
        Estimate(
            name="a step",
            value=tokens,
            most=shape.samples * most.total if shape.sampling else None,
            how=f"{samples}; {tokens / shape.row_tokens / shape.gpus:.1f} rows a GPU that trains",
        ),
        Estimate(
            name="learned a step",
            value=written,
            most=shape.samples * most.written if shape.sampling else None,
            how="what the model wrote of these",
        ),
    ]


def step_seconds(shape: RunSizes, gpu: Gpu) -> list[Estimate]:
    """Seconds of a step: the least that the GPUs' arithmetic and memory allow.

    Decoding videos, waiting for the longest answer and what GPUs send each other come on top.
    """
    model, sampling, speed = shape.model, shape.sampling, gpu.bf16 if shape.bf16 else gpu.fp32
    reference = sampling is not None and sampling.reference
    passes = 3 + shape.gradient_checkpointing + reference
    flop = 2 * passes * shape.samples * _weights(shape, sample_tokens(shape, learned=True))
    also = ", 1 again" * shape.gradient_checkpointing + ", 1 of the reference" * reference
    update = Estimate(
        name="update",
        value=flop / (shape.gpus * speed * COMPUTED),
        how=f"{flop:.2g} FLOP: 2 a weight, token and pass (1 forward, 2 backward{also}); "
        f"{COMPUTED:.0%} of {speed / 1e12:,g} TFLOP/s a GPU",
    )
    if sampling is None:
        return [update]
    usual, each = sample_tokens(shape), shape.samples / sampling.gpus
    flop = 2 * each * _weights(shape, replace(usual, responses=0, summaries=0))
    room = rollout_memory(shape, gpu)[-1].value / model.cache_bytes // usual.total
    at_once = max(1, min(each, sampling.at_once / sampling.gpus, room))
    tokens = each / at_once * (usual.responses + sampling.settings.summary_tokens / 2)
    read = 2 * (model.total - model.parameters["vision tower"]) + at_once * usual.total * model.cache_bytes
    reading = f"{flop:.2g} FLOP a GPU: 2 a weight and token; {COMPUTED:.0%} of {gpu.bf16 / 1e12:,g} TFLOP/s"
    writing = (
        f"{tokens:,.0f} tokens one after the other, {at_once:.0f} rollouts at once: each time {read / 1e9:,.3g} GB of "
        f"weights and cache; {READ:.0%} of {gpu.bandwidth / 1e12:g} TB/s"
    )
    return [
        Estimate(name="rollouts: reading", value=flop / (gpu.bf16 * COMPUTED), how=reading),
        Estimate(name="rollouts: writing", value=tokens * read / (gpu.bandwidth * READ), how=writing),
        update,
    ]


def _weights(shape: RunSizes, sample: SampleTokens) -> float:
    """Weights that a sample's tokens meet on their way, each counted as often as a token or a patch meets it."""
    model, visual = shape.model, sample.frames * shape.frame_tokens
    tower = model.parameters["vision tower"] * model.patches + model.parameters["mergers"]
    return (
        model.parameters["text layers"] * sample.total
        + tower * visual
        + model.vocabulary * model.hidden * sample.written
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """What a run needs."""

    shape: RunSizes
    gpu: Gpu
    unfit: list[str]
    """What does not fit, each with what would."""
    training: list[Estimate]
    """Bytes on each GPU that trains."""
    rollout: list[Estimate]
    """Bytes on each GPU that makes rollouts."""
    tokens: list[Estimate]
    seconds: list[Estimate]
    """Of a step; rollouts and update may run side by side."""
    shares: dict[str, float]
    """Their expected parts of `seconds`."""


def make_plan(shape: RunSizes, gpu: str = "h100") -> TrainingPlan:
    """The plan of a run on GPUs of a kind.

    Raises:
        SettingsError: there is no such kind.
    """
    if gpu not in GPUS:
        raise SettingsError(f"--gpu {gpu}: there is none of this name; there are {', '.join(GPUS)}")
    seconds = step_seconds(shape, GPUS[gpu])
    update = seconds[-1].value / _sum(seconds)
    return TrainingPlan(
        shape=shape,
        gpu=GPUS[gpu],
        unfit=list(_unfit(shape, GPUS[gpu])),
        training=training_memory(shape),
        rollout=rollout_memory(shape, GPUS[gpu]),
        tokens=step_tokens(shape),
        seconds=seconds,
        shares={"rollouts": 1 - update, "update": update},
    )


def _unfit(shape: RunSizes, gpu: Gpu) -> Iterator[str]:
    nothing = "nothing but a smaller model or GPUs with more memory"
    need = _sum(training_memory(shape))
    if need > gpu.memory:
        would = " or ".join(_mends(shape, gpu)) or nothing
        yield f"a training GPU needs {need / 1e9:,.1f} GB of {gpu.memory / 1e9:.0f}; what would fit: {would}"
    if shape.sampling is None:
        return
    longest = sample_tokens(shape, most=True).main
    if longest > shape.row_tokens:
        yield (
            f"a rollout may have {longest:,.0f} tokens, and one of more than row_tokens, {shape.row_tokens:,}, is left "
            f"out; what would fit: row_tokens {math.ceil(longest / 1024) * 1024}"
        )
    weights, server, _ = rollout_memory(shape, gpu)
    need = weights.value + server.value + longest * shape.model.cache_bytes
    if need > gpu.memory:
        yield (
            f"a rollout GPU needs {need / 1e9:,.1f} GB of {gpu.memory / 1e9:.0f} for the server, the weights and one "
            f"longest rollout; what would fit: {nothing}"
        )


def _mends(shape: RunSizes, gpu: Gpu) -> Iterator[str]:
    """Changes that make training fit: each that does so alone; else those that do two by two, or all three."""
    least = max(1024, sample_tokens(shape).main)
    gpus = [n for n in range(shape.gpus + 1, 65) if shape.sampling is None or shape.samples % n == 0]
    # Field and how a change of it is said, with its values from the smallest change on.
    changes: dict[tuple[str, str], list[int]] = {
        ("gpus", "{} training GPUs"): gpus,
        ("gradient_checkpointing", "gradient_checkpointing"): [] if shape.gradient_checkpointing else [True],
        ("row_tokens", "row_tokens {}"): [n for n in range(1024, shape.row_tokens, 1024) if n >= least][::-1],
    }
    for size in (1, 2, 3):
        found = False
        for keys in combinations(changes, size):
            for values in product(*(changes[key] for key in keys)):
                changed: dict[str, Any] = {field: value for (field, _), value in zip(keys, values, strict=True)}
                if _sum(training_memory(replace(shape, **changed))) <= gpu.memory:
                    yield " with ".join(said.format(value) for (_, said), value in zip(keys, values, strict=True))
                    found = True
                    break
        if found:
            return
