"""An A/B run as one HTML page that fetches nothing, runs no script and shows what models wrote as plain text.

The numbers are from `lmms_tasks.reports.statistics`; this file turns them into what `page.html.jinja` draws.
"""

import asyncio
import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from PIL import Image

from lmms_tasks.reports.prose import FIGURES, describe_comparison, format_figure, short_arm_names
from lmms_tasks.reports.statistics import Comparison, ComparisonStatistics, pair_results
from lmms_tasks.results import EvalItem, EvalResult
from paravt_infer.answers import extract_span
from paravt_infer.budget import RESPONSE_TOKENS, SYSTEM_TOKENS, predicted_parallel, predicted_sequential
from paravt_infer.console import printable
from paravt_infer.errors import VideoError
from paravt_infer.files import write_text_atomic
from paravt_infer.rollout import Evidence, Rollout
from paravt_infer.times import format_time
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.store import VideoStore
from paravt_infer.video.types import Frame

MAX_FLIPS = 40
"""Maximum flipped questions shown; the page states how many there are."""
MAX_FRAMES = 4
"""Maximum frames per window."""
FRAME_PIXELS = 120 * 80
EVIDENCE_CHARACTERS = 400
"""Characters of a piece of evidence that are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A scale from a value to a position in percent of a plot's side, with its ticks."""

    low: float
    high: float
    ticks: list[float]

    @classmethod
    def over(cls, low: float, high: float, *, count: int = 4) -> "Axis":
        """The axis from `low` to `high`, with about `count` ticks at round values.

        >>> Axis.over(0, 23).ticks
        [0, 5, 10, 15, 20]
        """
        span = high - low or 1.0
        rough = span / count
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.8)
        first, last = math.ceil(low / step - 1e-9), math.floor((low + span) / step + 1e-9)
        return cls(low=low, high=low + span, ticks=[_tidy(n * step) for n in range(first, last + 1)])

    def at(self, value: float) -> float:
        """The value's position, 0 to 100."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def line(self, values: Sequence[float], upward: "Axis", heights: Sequence[float]) -> str:
        """An SVG path through the points, in a picture of 100 by 100 with y downward."""
        points = zip(values, heights, strict=True)
        return "M" + " L".join(f"{self.at(x):g},{round(100 - upward.at(y), 2):g}" for x, y in points)


def _tidy(value: float) -> float:
    """A tick without floating-point noise, an integer where it can be."""
    rounded = round(value, 10)
    return int(rounded) if rounded == int(rounded) else rounded


def write_page(
    comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult], path: Path, *, title: str
) -> None:
    """Write the page, a single self-contained file.

    Frames are read from the rollouts' videos; where one is missing, the page says so. Must not be called from a
    running event loop: it starts its own for the decoding workers.

    Args:
        a: the first arm's results, from which `comparison` was made; b: the second's.

    Raises:
        SettingsError: the page cannot be written.
    """
    # Control characters and lone surrogates would make the page invalid.
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    source = resources.files("lmms_tasks.reports").joinpath("page.html.jinja").read_text(encoding="utf-8")
    text = environment.from_string(source).render(
        title=title,
        comparison=comparison,
        names=short_arm_names(comparison.names),
        sentences=describe_comparison(comparison.overall, short_arm_names(comparison.names)),
        figures=_figures(comparison.overall),
        forest=_forest(comparison),
        flips=_flips(comparison, a, b),
        flipped=sum(pair.flipped for pair in comparison.pairs),
        time=format_time,
        **_plots(comparison, a, b),
    )
    write_text_atomic(path, text)


def _figures(part: ComparisonStatistics) -> list[list[str]]:
    """The table of both arms: label, first, second, change."""
    rows = []
    for figure in FIGURES:
        first, second, change = format_figure(part, figure)
        values = ["–" if text == "-" else text for text in (first, second)]
        rows.append([figure.label, *values, change.replace("x ", "× ").replace("-", "−")])
    return rows


def _forest(comparison: Comparison) -> dict[str, Any] | None:
    """Differences with their intervals, all questions first, and the axis they share."""
    parts = {"all questions": comparison.overall}
    parts |= comparison.tasks if len(comparison.tasks) > 1 else {}
    parts = {name: part for name, part in parts.items() if part.difference is not None}
    ends = [0.0, *(end for part in parts.values() for end in (part.difference or 0.0, *(part.interval or ())))]
    if not parts:
        return None
    margin = max(1.0, 0.08 * (max(ends) - min(ends)))
    return {"parts": parts, "axis": Axis.over(min(ends) - margin, max(ends) + margin, count=5)}


def _plots(comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult]) -> dict[str, Any]:
    scored = {(pair.task, pair.id) for pair in comparison.pairs if pair.scored}
    arms = [[result.rollout for result in results if result.key in scored] for results in (a, b)]
    if not scored:
        return {"latency": None, "bars": [], "budget": None}
    shares = [n / 100 for n in range(101)]
    curves = [np.quantile([rollout.usage.seconds for rollout in arm], shares).tolist() for arm in arms]
    over, up = Axis.over(0, max(curve[-1] for curve in curves)), Axis.over(0, 1)
    latency = {"axis": over, "paths": [over.line(curve, up, shares) for curve in curves]}
    bars = []
    for figure in FIGURES:
        if figure.field in ("main_visual_tokens", "output_tokens", "calls"):
            values = [getattr(arm, figure.field) for arm in (comparison.overall.a, comparison.overall.b)]
            texts = format_figure(comparison.overall, figure)[:2]
            bars.append((figure.label, [(100 * v / (max(values) or 1), t) for v, t in zip(values, texts, strict=True)]))
    return {"latency": latency, "bars": bars, "budget": _budget(arms)}


def _budget(arms: Sequence[Sequence[Rollout]]) -> dict[str, Any]:
    """Prompt tokens by number of calls: the paper's two formulas as lines, measurements as points."""
    points = []
    for arm in arms:
        by_calls: dict[int, list[int]] = {}
        for rollout in arm:
            by_calls.setdefault(rollout.usage.calls, []).append(rollout.usage.main_prompt_tokens)
        points.append([(calls, sum(tokens) / len(tokens), len(tokens)) for calls, tokens in sorted(by_calls.items())])
    usages = [rollout.usage for arm in arms for rollout in arm]
    visuals = [usage.predicted_parallel - SYSTEM_TOKENS - RESPONSE_TOKENS * usage.calls for usage in usages]
    visual = sum(visuals) / len(visuals)
    counts = range(max(2, *(usage.calls for usage in usages)) + 1)
    lines = {
        "T_seq": [predicted_sequential(calls, visual=visual) for calls in counts],
        "T_par": [predicted_parallel(calls, visual=visual) for calls in counts],
    }
    highest = max(*(line[-1] for line in lines.values()), *(tokens for arm in points for _, tokens, _ in arm))
    across = Axis(low=-0.3, high=counts[-1] + 0.3, ticks=[float(n) for n in counts[:: 1 + counts[-1] // 8]])
    up = Axis.over(0, highest * 1.05)
    return {
        "across": across,
        "up": up,
        "points": points,
        "paths": {name: across.line(list(counts), up, line) for name, line in lines.items()},
        "ends": {name: line[-1] for name, line in lines.items()},
        "last": counts[-1],
        "visual": visual,
    }


def _flips(comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult]) -> list[dict[str, Any]]:
    """The flipped questions that are shown: the question, and for each arm its answer, score and windows."""
    pairs = zip(comparison.pairs, pair_results(a, b), strict=True)
    flipped = [(pair, results) for pair, results in pairs if pair.flipped][:MAX_FLIPS]
    times: dict[str, set[float]] = {}
    for _, results in flipped:
        for rollout in (result.rollout for result in results):
            for call in rollout.evidence:
                times.setdefault(rollout.question.video, set()).update(thumbnail_times(call))
    images = asyncio.run(_read_frames(times)) if times else {}
    return [
        {
            "pair": pair,
            "item": results[0].item,
            "arms": [
                _arm(result.item, result.rollout, score, images.get(result.rollout.question.video, []))
                for result, score in zip(results, (pair.a, pair.b), strict=True)
            ],
        }
        for pair, results in flipped
    ]


def _arm(item: EvalItem, rollout: Rollout, score: float | None, images: Sequence[Frame] | str) -> dict[str, Any]:
    duration = rollout.video.duration if rollout.video else 0.0
    gold = extract_span(item.gold) if item.question.kind == "grounding" else None
    return {
        "rollout": rollout,
        "score": score,
        "duration": duration,
        "ticks": [_timeline_position([frame.time], duration)[0] for frame in rollout.overview],
        "gold": _timeline_position(gold, duration) if gold else None,
        "windows": [_window(call, images, duration) for call in rollout.evidence],
        "missing": images if rollout.evidence and isinstance(images, str) else "",
    }


def _timeline_position(span: Sequence[float], duration: float) -> tuple[float, float]:
    """Left edge and width of a span of seconds on a timeline, in percent; wide enough to be visible."""
    left, right = (100 * min(max(second, 0.0), duration) / (duration or 1.0) for second in (min(span), max(span)))
    return round(min(left, 99.2), 2), round(max(right - left, 0.8), 2)


def _window(call: Evidence, images: Sequence[Frame] | str, duration: float) -> dict[str, Any]:
    """A call: its position on the timeline if it has one, its evidence, and its frames as (time, JPEG in base64)."""
    span = call.used or call.asked
    text = " ".join(call.text.split())
    frames = []
    if images and not isinstance(images, str):
        for time in thumbnail_times(call):
            frame = min(images, key=lambda image: abs(image.time - time))
            frames.append((frame.time, _jpeg(frame)))
    return {
        "call": call,
        "position": _timeline_position(span, duration) if span and all(map(math.isfinite, span)) else None,
        "frames": frames,
        "text": text[:EVIDENCE_CHARACTERS] + (" …" if len(text) > EVIDENCE_CHARACTERS else ""),
    }


def thumbnail_times(call: Evidence) -> list[float]:
    """The times of at most `MAX_FRAMES` of a call's frames, evenly spread; none of a call that failed."""
    times = [frame.time for frame in call.frames] if call.status == "ok" else []
    if len(times) <= MAX_FRAMES:
        return times
    return [times[round(n * (len(times) - 1) / (MAX_FRAMES - 1))] for n in range(MAX_FRAMES)]


async def _read_frames(times: Mapping[str, set[float]]) -> dict[str, list[Frame] | str]:
    """Each video's frames at its times, or the error, one line, that explains why there are none."""
    store, sizing = VideoStore(DecodePool()), FrameSizing(multiple=4, max_pixels=FRAME_PIXELS)

    async def read(video: str) -> list[Frame] | str:
        try:
            return await store.frames(video, sorted(times[video]), sizing) if times[video] else []
        except VideoError as error:
            return str(error)

    try:
        return dict(zip(times, await asyncio.gather(*map(read, times)), strict=True))
    finally:
        await store.close()


def _jpeg(frame: Frame) -> str:
    buffer = io.BytesIO()
    Image.fromarray(frame.pixels).save(buffer, format="JPEG", quality=75)
    return base64.b64encode(buffer.getvalue()).decode()
