"""An A/B run as one HTML page: nothing is fetched, no script runs, what models wrote is only ever text.

The numbers are `lmms_tasks.compare`'s; this file turns them into what `page.html.jinja` draws.
"""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from lmms_tasks.compare import ROWS, Comparison, ComparisonStatistics, against, match, sentences, short_names
from lmms_tasks.items import EvalResult, Item, write_whole
from paravt_infer.answers import extract_span
from paravt_infer.budget import RESPONSE_TOKENS, SYSTEM_TOKENS, predicted_parallel, predicted_sequential
from paravt_infer.rollout import Evidence, Rollout
from paravt_infer.times import format_time
from paravt_infer.video.types import Frame

FLIPPED = 40
"""At most so many flipped questions are shown; the page says how many there are."""
FRAMES = 4
"""At most so many frames a window."""
FRAME_PIXELS = 120 * 80
WORDS = 400
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
        return cls(low=low, high=low + span, ticks=[_short(n * step) for n in range(first, last + 1)])

    def at(self, value: float) -> float:
        """The value's position, 0 to 100."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def line(self, values: Sequence[float], upward: "Axis", heights: Sequence[float]) -> str:
        """An SVG path through the points, in a picture of 100 by 100 with y downward."""
        points = zip(values, heights, strict=True)
        return "M" + " L".join(f"{self.at(x):g},{round(100 - upward.at(y), 2):g}" for x, y in points)


def _short(value: float) -> float:
    """A tick without the noise of binary fractions, whole where it can be."""
    tidy = round(value, 10)
    return int(tidy) if tidy == int(tidy) else tidy


def write_page(
    comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult], path: Path, *, title: str
) -> None:
    """Write the page: one file that can be mailed.

    Frames are read from the rollouts' videos; where one is gone, the page says so. Not to be called from within a
    running event loop: it runs one of its own for the decoding workers.

    Args:
        a: the first arm's rows, those that `comparison` was made of; b: the second's.

    Raises:
        SettingsError: the page cannot be written.
    """
    import jinja2

    # Control characters and half surrogates have no place in a page, and could end its being one.
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: _printable(value) if type(value) is str else value,
    )
    template = environment.from_string(
        resources.files("lmms_tasks").joinpath("page.html.jinja").read_text(encoding="utf-8")
    )
    text = template.render(
        title=title,
        comparison=comparison,
        names=short_names(comparison.names),
        sentences=sentences(comparison.overall, short_names(comparison.names)),
        figures=_figures(comparison.overall),
        forest=_forest(comparison),
        flips=_flips(comparison, a, b),
        flipped=sum(pair.flipped for pair in comparison.pairs),
        time=format_time,
        **_plots(comparison, a, b),
    )
    write_whole(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))


def _printable(text: str) -> str:
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def _figures(part: ComparisonStatistics) -> list[list[str]]:
    """The table of both arms: label, first, second, second by first."""
    shown = []
    for label, field, form, way in ROWS:
        a, b = getattr(part.a, field), getattr(part.b, field)
        texts = ["–" if value is None else form.format(value) for value in (a, b)]
        change = against(a, b, way)
        shown.append([label, *texts, change.replace("x ", "× ").replace("-", "−")])
    return shown


def _forest(comparison: Comparison) -> dict[str, Any] | None:
    """Differences with their intervals, all questions first, and the axis they share."""
    parts = {"all questions": comparison.overall}
    parts |= comparison.tasks if len(comparison.tasks) > 1 else {}
    drawn = {name: part for name, part in parts.items() if part.difference is not None}
    ends = [0.0, *(end for part in drawn.values() for end in (part.difference or 0.0, *(part.interval or ())))]
    if not drawn:
        return None
    room = max(1.0, 0.08 * (max(ends) - min(ends)))
    return {"parts": drawn, "axis": Axis.over(min(ends) - room, max(ends) + room, count=5)}


def _plots(comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult]) -> dict[str, Any]:
    import numpy as np

    scored = {(pair.task, pair.id) for pair in comparison.pairs if pair.scored}
    arms = [[row.rollout for row in rows if (row.item.task, row.item.question.id) in scored] for rows in (a, b)]
    if not scored:
        return {"latency": None, "bars": [], "budget": None}
    shares = [n / 100 for n in range(101)]
    curves = [np.quantile([one.usage.seconds for one in arm], shares).tolist() for arm in arms]
    over, up = Axis.over(0, max(curve[-1] for curve in curves)), Axis.over(0, 1)
    latency = {"axis": over, "paths": [over.line(curve, up, shares) for curve in curves]}
    bars = []
    for label, field, form in (
        ("visual tokens in the main context", "main_visual_tokens", "{:,.0f}"),
        ("output tokens", "output_tokens", "{:,.0f}"),
        ("calls", "calls", "{:.2f}"),
    ):
        values = [getattr(arm, field) for arm in (comparison.overall.a, comparison.overall.b)]
        bars.append((label, [(100 * value / (max(values) or 1), form.format(value)) for value in values]))
    return {"latency": latency, "bars": bars, "budget": _budget(arms)}


def _budget(arms: Sequence[Sequence[Rollout]]) -> dict[str, Any]:
    """Tokens in by number of calls: the paper's two formulas as lines, what was measured as points."""
    points = []
    for arm in arms:
        by_calls: dict[int, list[int]] = {}
        for rollout in arm:
            by_calls.setdefault(rollout.usage.calls, []).append(rollout.usage.main_prompt_tokens)
        points.append([(calls, sum(found) / len(found), len(found)) for calls, found in sorted(by_calls.items())])
    everyone = [rollout.usage for arm in arms for rollout in arm]
    visual = sum(one.predicted_parallel - SYSTEM_TOKENS - RESPONSE_TOKENS * one.calls for one in everyone) / len(
        everyone
    )
    counts = range(max(2, *(one.calls for one in everyone)) + 1)
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
    flipped = [(pair, rows) for pair, rows in zip(comparison.pairs, match(a, b), strict=True) if pair.flipped][:FLIPPED]
    calls = [(row.rollout, call) for _, rows in flipped for row in rows for call in row.rollout.evidence]
    wanted: dict[str, set[float]] = {}
    for rollout, call in calls:
        wanted.setdefault(rollout.question.video, set()).update(picked_times(call))
    pictures = _read(wanted)
    return [
        {
            "pair": pair,
            "item": rows[0].item,
            "arms": [
                _arm(row.item, row.rollout, score, pictures[row.rollout.question.video] if row.rollout.evidence else [])
                for row, score in zip(rows, (pair.a, pair.b), strict=True)
            ],
        }
        for pair, rows in flipped
    ]


def _arm(item: Item, rollout: Rollout, score: float | None, pictures: Sequence[Frame] | str) -> dict[str, Any]:
    duration = rollout.video.duration if rollout.video else 0.0
    gold = extract_span(item.gold) if item.question.kind == "grounding" else None
    return {
        "rollout": rollout,
        "score": score,
        "duration": duration,
        "ticks": [_place([frame.time], duration)[0] for frame in rollout.overview],
        "gold": _place(gold, duration) if gold else None,
        "windows": [_window(call, pictures, duration) for call in rollout.evidence],
        "missing": pictures if isinstance(pictures, str) else "",
    }


def _place(span: Sequence[float], duration: float) -> tuple[float, float]:
    """Where a span of seconds stands on a timeline and how wide it is, in percent; never too narrow to see."""
    left, right = (100 * min(max(second, 0.0), duration) / (duration or 1.0) for second in (min(span), max(span)))
    return round(min(left, 99.2), 2), round(max(right - left, 0.8), 2)


def _window(call: Evidence, pictures: Sequence[Frame] | str, duration: float) -> dict[str, Any]:
    """A call: its place on the timeline where it has one, its evidence, and its frames as (time, JPEG in base64)."""
    span = call.used or call.asked
    placed = _place(span, duration) if span and all(map(math.isfinite, span)) else None
    words = " ".join(call.text.split())
    frames = []
    if pictures and not isinstance(pictures, str):
        for time in picked_times(call):
            frame = min(pictures, key=lambda one: abs(one.time - time))
            frames.append((frame.time, _jpeg(frame)))
    return {
        "call": call,
        "place": placed,
        "frames": frames,
        "words": words[:WORDS] + (" …" if len(words) > WORDS else ""),
    }


def picked_times(call: Evidence) -> list[float]:
    """The times of at most `FRAMES` of a call's frames, spread evenly; none of a call that failed."""
    times = [frame.time for frame in call.frames] if call.status == "ok" else []
    if len(times) <= FRAMES:
        return times
    return [times[round(n * (len(times) - 1) / (FRAMES - 1))] for n in range(FRAMES)]


def _read(wanted: Mapping[str, set[float]]) -> dict[str, list[Frame] | str]:
    """Each video's frames at the wanted times, or the one line that says why there are none."""
    import asyncio

    from paravt_infer.errors import VideoError
    from paravt_infer.video.pool import DecodePool
    from paravt_infer.video.sampling import FrameSizing
    from paravt_infer.video.store import VideoStore

    sizing = FrameSizing(multiple=4, max_pixels=FRAME_PIXELS)

    async def one(store: VideoStore, video: str) -> list[Frame] | str:
        try:
            return await store.frames(video, sorted(wanted[video]), sizing) if wanted[video] else []
        except VideoError as error:
            return str(error)

    async def every() -> list[list[Frame] | str]:
        store = VideoStore(DecodePool())
        try:
            return await asyncio.gather(*(one(store, video) for video in wanted))
        finally:
            await store.close()

    return dict(zip(wanted, asyncio.run(every()), strict=True)) if wanted else {}


def _jpeg(frame: Frame) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame.pixels).save(buffer, format="JPEG", quality=75)
    return base64.b64encode(buffer.getvalue()).decode()
