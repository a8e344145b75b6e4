"""Estimates what a training run needs before a model is loaded: parameters, memory per GPU, tokens and time per step.

Parameters are exact; the rest is estimated, with an explanation for each number.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, product
from statistics import mean
from typing import Any

from paravt_infer.errors import SettingsError, suggestion
from paravt_training.plan.sizes import CALLS, FRAME_TEXT_TOKENS, RunSizes, SampleTokens, sample_tokens

MAX_LEARNED = 0.25
"""The maximum share of learned tokens in an SFT row; the rest is mostly frames."""
COMPUTE_EFFICIENCY, BANDWIDTH_EFFICIENCY = 0.4, 0.6
"""The shares of a GPU's peak arithmetic and memory bandwidth that are assumed to be reached."""
LOGIT_BYTES = 12
"""Per learned token and vocabulary entry: log-probabilities and two simultaneous gradients of them, in fp32."""
SERVER_SHARE = 0.15
"""The share of a rollout GPU's memory that the server uses for its own work, apart from weights and KV cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A type of GPU, by its maker's numbers."""

    name: str
    memory: float
    """Nominal bytes. There are some 6 % more, which CUDA, NCCL and fragmentation take."""
    bf16: float
    """FLOP/s, dense."""
    fp32: float
    bandwidth: float
    """Bytes per second."""


GPUS = {
    "a100": Gpu(name="A100 80 GB", memory=80e9, bf16=312e12, fp32=19.5e12, bandwidth=2.04e12),
    "h100": Gpu(name="H100 80 GB", memory=80e9, bf16=989e12, fp32=67e12, bandwidth=3.35e12),
    "h200": Gpu(name="H200 141 GB", memory=141e9, bf16=989e12, fp32=67e12, bandwidth=4.8e12),
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number of a plan."""

    name: str
    value: float
    explanation: str
    """How the value is computed."""
    maximum: float | None = None
    """What the value can be at most, where that is known to differ."""


def training_memory(sizes: RunSizes) -> list[Estimate]:
    """Bytes on each training GPU, with the model sharded as by `model.distributed.shard`, at a step's peak.

    The peak is the backward pass of the fullest row: one of frames only or one of learned tokens only, whichever needs
    more; for SFT, one with a share of `MAX_LEARNED` learned tokens.
    """
    model, number_bytes, dtype = sizes.model, *((2, "bf16") if sizes.bf16 else (4, "fp32"))
    where = f"sharded over {sizes.gpus} GPUs" if sizes.gpus > 1 else "on one GPU"
    layer = model.parameters["text layers"] / model.layers
    root = model.total - model.parameters["text layers"] - model.parameters["vision tower"]
    sharded = [
        ("weights", 4, "4 bytes (fp32)"),
        ("gradients", 4, "4 bytes (fp32)"),
        ("AdamW moments", 8, "2 x 4 bytes"),
    ]
    gathered, explanation = root + 2 * layer, "embeddings, head, mergers and two text layers"
    if sizes.sampling and sizes.sampling.reference:
        sharded.append(("reference model", 4, "frozen, 4 bytes (fp32)"))
        gathered, explanation = gathered + root, f"{explanation}, and the reference's without layers"
    lines = [
        Estimate(name, size * model.total / sizes.gpus, f"{text} per parameter, {where}")
        for name, size, text in sharded
    ]
    lines += [
        Estimate("gathered weights", number_bytes * gathered, f"{explanation}: unsharded, in {dtype}"),
        Estimate(
            "gathered gradients",
            number_bytes * (root + layer) + 4 * layer,
            f"embeddings, head, mergers and a text layer: unsharded, in {dtype}; the layer's sum in fp32",
        ),
    ]
    visual = sizes.frame_tokens / (sizes.frame_tokens + FRAME_TEXT_TOKENS)
    shares = [(visual, 0.0), (0.0, 1.0)] if sizes.sampling else [(visual * (1 - MAX_LEARNED), MAX_LEARNED)]
    return lines + max((_row_memory(sizes, *share) for share in shares), key=_sum)


def _row_memory(sizes: RunSizes, visual: float, learned: float) -> list[Estimate]:
    """Bytes that a row keeps for its backward pass, given the shares of its tokens that are visual and learned."""
    model, tokens, number_bytes = sizes.model, sizes.row_tokens, 2 if sizes.bf16 else 4
    patches, kept = tokens * visual * model.patches, "all activations of {} layers"
    text, vision = tokens * model.text_layer_bytes(number_bytes), patches * model.vision_layer_bytes(number_bytes)
    last = Estimate(
        "logits",
        tokens * learned * model.vocabulary * LOGIT_BYTES,
        f"{learned:.0%} of a row learned, {LOGIT_BYTES} bytes for each of {model.vocabulary:,} tokens",
    )
    if sizes.gradient_checkpointing:
        # The logits' gradient is freed before the last layer is recomputed: the greater of the two counts.
        layer = Estimate("layer computed again", max(text, vision), "all activations of the largest layer")
        last, kept = max(last, layer, key=lambda line: line.value), "the inputs of {} layers"
        text, vision = tokens * model.hidden * number_bytes, patches * model.vision_hidden * number_bytes
    return [
        Estimate("activations, text", text * model.layers, f"a row of {tokens:,} tokens: {kept.format(model.layers)}"),
        Estimate(
            "activations, vision",
            vision * model.vision_layers,
            f"{visual:.0%} of a row visual, {model.patches} patches per token: {kept.format(model.vision_layers)}",
        ),
        last,
    ]


def _sum(lines: Sequence[Estimate]) -> float:
    return math.fsum(line.value for line in lines)


def rollout_memory(sizes: RunSizes, gpu: Gpu) -> list[Estimate]:
    """Bytes on each rollout GPU; empty for SFT."""
    if sizes.sampling is None:
        return []
    weights, server, token = 2 * sizes.model.total, SERVER_SHARE * gpu.memory, sizes.model.cache_bytes
    cache = max(0.0, gpu.memory - weights - server)
    return [
        Estimate("weights", weights, "2 bytes per parameter (bf16), unsharded"),
        Estimate("server", server, f"{SERVER_SHARE:.0%} for the server's own work"),
        Estimate("KV cache", cache, f"the rest: {cache / token:,.0f} tokens of {token:,} bytes (bf16)"),
    ]


def step_tokens(sizes: RunSizes) -> list[Estimate]:
    """Tokens of a sample by what they are, and of a step; with a maximum where the settings determine one."""
    frame = f"{sizes.frame_tokens} + {FRAME_TEXT_TOKENS} tokens each"
    explanations = {
        "overview": f"{mean(sizes.budgets):.3g} frames, at most {max(sizes.budgets)}; {frame}",
        "prompt": "system prompt and question: the paper's estimate",
        "responses": "assumed, because the data is not read",
    }
    if sizes.sampling:
        settings = sizes.sampling.settings
        turns, calls = settings.max_tool_turns + 1, settings.max_tool_turns * settings.max_calls
        explanations["responses"] = (
            f"2 turns, half of {settings.max_new_tokens:,} tokens each; at most {turns}, all of them"
        )
        windows = f"{settings.window_frames} frames, {frame}"
        if settings.evidence == "frames":
            explanations["evidence"] = f"{CALLS:g} calls, at most {calls}; for each {windows}"
        else:
            explanations["evidence"] = (
                f"{CALLS:g} calls, half of {settings.summary_tokens} tokens each; at most {calls}, all of them"
            )
            explanations["windows"] = f"for each call a prompt and {windows}"
            explanations["summaries"] = "the evidence, as sub-agents generate it"
    bounded = tuple(explanations) if sizes.sampling else ("overview",)
    usual, largest = sample_tokens(sizes), sample_tokens(sizes, maximum=True)
    lines = [
        Estimate(name, getattr(usual, name), explanation, maximum=getattr(largest, name) if name in bounded else None)
        for name, explanation in explanations.items()
    ]
    usual, largest = sample_tokens(sizes, learned=True), sample_tokens(sizes, maximum=True, learned=True)
    tokens = sizes.samples * usual.total
    samples = f"{sizes.samples} {'rollouts' if sizes.sampling else 'conversations'}"
    samples += ", including sub-agents" if usual.windows else ""
    return [
        *lines,
        Estimate(
            "a step",
            tokens,
            f"{samples}; {tokens / sizes.row_tokens / sizes.gpus:.1f} rows per training GPU",
            maximum=sizes.samples * largest.total if sizes.sampling else None,
        ),
        Estimate(
            "learned a step",
            sizes.samples * usual.output,
            "the generated ones among these",
            maximum=sizes.samples * largest.output if sizes.sampling else None,
        ),
    ]


def step_seconds(sizes: RunSizes, gpu: Gpu) -> list[Estimate]:
    """Lower bounds of the seconds per step from the GPUs' arithmetic and memory bandwidth.

    Decoding videos, waiting for the longest answer and communication between GPUs are not included.
    """
    model, sampling, speed = sizes.model, sizes.sampling, gpu.bf16 if sizes.bf16 else gpu.fp32
    reference = sampling is not None and sampling.reference
    passes = 3 + sizes.gradient_checkpointing + reference
    flop = 2 * passes * sizes.samples * _weight_uses(sizes, sample_tokens(sizes, learned=True))
    further = ", 1 recomputed" * sizes.gradient_checkpointing + ", 1 of the reference" * reference
    update = Estimate(
        "update",
        flop / (sizes.gpus * speed * COMPUTE_EFFICIENCY),
        f"{flop:.2g} FLOP: 2 per weight, token and pass (1 forward, 2 backward{further}); "
        f"{COMPUTE_EFFICIENCY:.0%} of {speed / 1e12:,g} TFLOP/s per GPU",
    )
    if sampling is None:
        return [update]
    usual, rollouts = sample_tokens(sizes), sizes.samples / sampling.gpus
    flop = 2 * rollouts * _weight_uses(sizes, replace(usual, responses=0, summaries=0))
    capacity = rollout_memory(sizes, gpu)[-1].value / model.cache_bytes // usual.total
    batch = max(1, min(rollouts, sampling.concurrency / sampling.gpus, capacity))
    steps = rollouts / batch * (usual.responses + sampling.settings.summary_tokens / 2)
    bytes_read = 2 * (model.total - model.parameters["vision tower"]) + batch * usual.total * model.cache_bytes
    return [
        Estimate(
            "rollouts: reading",
            flop / (gpu.bf16 * COMPUTE_EFFICIENCY),
            f"{flop:.2g} FLOP per GPU: 2 per weight and token; "
            f"{COMPUTE_EFFICIENCY:.0%} of {gpu.bf16 / 1e12:,g} TFLOP/s",
        ),
        Estimate(
            "rollouts: writing",
            steps * bytes_read / (gpu.bandwidth * BANDWIDTH_EFFICIENCY),
            f"{steps:,.0f} decoding steps of {batch:.0f} concurrent rollouts, each reading "
            f"{bytes_read / 1e9:,.3g} GB of weights and cache; "
            f"{BANDWIDTH_EFFICIENCY:.0%} of {gpu.bandwidth / 1e12:g} TB/s",
        ),
        update,
    ]


def _weight_uses(sizes: RunSizes, sample: SampleTokens) -> float:
    """Multiplications by a weight in a forward pass of a sample, per weight and token or patch."""
    model, visual = sizes.model, sample.frames * sizes.frame_tokens
    vision = model.parameters["vision tower"] * model.patches + model.parameters["mergers"]
    return (
        model.parameters["text layers"] * sample.total
        + vision * visual
        + model.vocabulary * model.hidden * sample.output
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """What a run needs."""

    sizes: RunSizes
    gpu: Gpu
    unfit: list[str]
    """What does not fit, and what would."""
    training: list[Estimate]
    """Bytes on each training GPU."""
    rollout: list[Estimate]
    """Bytes on each rollout GPU."""
    tokens: list[Estimate]
    seconds: list[Estimate]
    """Per step; rollouts and update may overlap."""
    shares: dict[str, float]
    """Expected shares of `seconds`."""

    def to_json(self) -> dict[str, Any]:
        """The plan as `paravt train plan --json` prints it, in bytes, tokens and seconds."""
        values = asdict(self, dict_factory=lambda fields: {_JSON_KEYS.get(name, name): value for name, value in fields})
        if self.sizes.sampling:
            values["shape"]["sampling"]["settings"] = self.sizes.sampling.settings.model_dump()
        return values


_JSON_KEYS = {
    "explanation": "how", "maximum": "most", "query_size": "queries", "key_size": "keys", "vision_layers": "blocks",
    "vision_hidden": "block_hidden", "vision_intermediate": "block_intermediate", "token_side": "side",
    "concurrency": "at_once", "sizes": "shape",
}  # fmt: skip
"""Fields whose JSON keys are older than their names."""


def make_plan(sizes: RunSizes, gpu: str = "h100") -> TrainingPlan:
    """The plan of a run on a type of GPU.

    Raises:
        SettingsError: unknown type of GPU.
    """
    if gpu not in GPUS:
        raise SettingsError(f"--gpu: unknown GPU {gpu!r}{suggestion(gpu, GPUS)}")
    seconds = step_seconds(sizes, GPUS[gpu])
    update = seconds[-1].value / _sum(seconds)
    return TrainingPlan(
        sizes=sizes,
        gpu=GPUS[gpu],
        unfit=list(_unfit(sizes, GPUS[gpu])),
        training=training_memory(sizes),
        rollout=rollout_memory(sizes, GPUS[gpu]),
        tokens=step_tokens(sizes),
        seconds=seconds,
        shares={"rollouts": 1 - update, "update": update},
    )


def _unfit(sizes: RunSizes, gpu: Gpu) -> Iterator[str]:
    """What does not fit, one line each."""
    larger_gpu = "only a smaller model or GPUs with more memory"
    need = _sum(training_memory(sizes))
    if need > gpu.memory:
        fits = " or ".join(_fitting_changes(sizes, gpu)) or larger_gpu
        yield f"a training GPU needs {need / 1e9:,.1f} GB of {gpu.memory / 1e9:.0f}; what would fit: {fits}"
    if sizes.sampling is None:
        return
    longest = sample_tokens(sizes, maximum=True).main
    if longest > sizes.row_tokens:
        yield (
            f"a rollout may have {longest:,.0f} tokens, and one of more than row_tokens, {sizes.row_tokens:,}, is left "
            f"out; what would fit: row_tokens {math.ceil(longest / 1024) * 1024}"
        )
    weights, server, _ = rollout_memory(sizes, gpu)
    need = weights.value + server.value + longest * sizes.model.cache_bytes
    if need > gpu.memory:
        yield (
            f"a rollout GPU needs {need / 1e9:,.1f} GB of {gpu.memory / 1e9:.0f} for the server, the weights and one "
            f"rollout of maximum length; what would fit: {larger_gpu}"
        )


def _fitting_changes(sizes: RunSizes, gpu: Gpu) -> Iterator[str]:
    """Changes that make training fit: single ones if there are any, else combinations of two, else all three."""
    min_row_tokens = max(1024, sample_tokens(sizes).main)
    gpus = [n for n in range(sizes.gpus + 1, 65) if sizes.sampling is None or sizes.samples % n == 0]
    # Field and description, with values from the smallest change to the largest.
    changes: dict[tuple[str, str], list[int]] = {
        ("gpus", "{} training GPUs"): gpus,
        ("gradient_checkpointing", "gradient_checkpointing"): [] if sizes.gradient_checkpointing else [True],
        ("row_tokens", "row_tokens {}"): [n for n in range(1024, sizes.row_tokens, 1024) if n >= min_row_tokens][::-1],
    }
    for size in (1, 2, 3):
        found = False
        for keys in combinations(changes, size):
            for values in product(*(changes[key] for key in keys)):
                changed: dict[str, Any] = {field: value for (field, _), value in zip(keys, values, strict=True)}
                if _sum(training_memory(replace(sizes, **changed))) <= gpu.memory:
                    yield " with ".join(text.format(value) for (_, text), value in zip(keys, values, strict=True))
                    found = True
                    break
        if found:
            return
