"""The numbers of the paper's Table 1, as printed: what our own results are laid beside."""

from dataclasses import dataclass
from typing import Literal

SOURCE = "ParaVT, arXiv 2605.20342, Table 1 (section 4.2)"

COLUMNS: dict[str, str] = {
    "paravt_videomme": "VideoMME w/o sub",
    "paravt_videomme_w_subtitle": "VideoMME w/ sub",
    "paravt_longvideobench": "LongVideoBench",
    "paravt_lvbench": "LVBench",
    "paravt_mlvu": "MLVU",
    "paravt_mmvu": "MMVU",
    "paravt_charades_sta": "Charades-STA test",
}
"""Our task to the table's column. All are accuracies in percent, but for Charades-STA: mean IoU in percent."""

SIZES: dict[str, int] = {
    "paravt_videomme": 2700,
    "paravt_videomme_w_subtitle": 2700,
    "paravt_longvideobench": 1337,
    "paravt_lvbench": 1549,
    "paravt_mlvu": 2174,
    "paravt_mmvu": 1000,
    "paravt_charades_sta": 3720,
}
"""Questions of each split, from the benchmarks' own papers: VideoMME test (arXiv 2405.21075), LongVideoBench validation
(2407.15754), LVBench (2406.08035), MLVU dev, multiple choice (2406.04264), MMVU validation (2501.12380), Charades-STA
test (1705.02101). The paper names the splits and not their sizes."""

Setting = Literal["proprietary", "direct", "reasoning", "agentic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """One row of the table."""

    model: str
    """As the table calls it, without its citation."""
    setting: Setting
    """The block it stands in: numbers from official reports under other protocols (`proprietary`), else the kind of
    prompt it was evaluated with."""
    numbers: dict[str, float]
    """Task to percent; a cell without a number is left out, see `NOTES`."""


def _row(model: str, setting: Setting, *numbers: float | None) -> Published:
    cells = zip(COLUMNS, numbers, strict=True)
    return Published(model=model, setting=setting, numbers={task: n for task, n in cells if n is not None})


PUBLISHED: tuple[Published, ...] = (
    _row("GPT-4o", "proprietary", 71.9, 77.2, 66.7, 34.7, 64.6, 66.7, None),
    _row("Gemini 1.5 Pro", "proprietary", 75.0, 81.3, 64.4, 33.1, 74.3, 65.8, None),
    _row("Qwen2.5-VL-7B", "direct", 55.7, 64.5, 46.4, 32.2, 47.8, 65.4, 31.6),
    _row("Video-R1-7B", "reasoning", 57.6, 66.0, 57.4, 36.9, 61.6, 61.3, 25.4),
    _row("VideoChat-R1-7B", "reasoning", 50.4, 58.2, 49.2, 23.8, 58.7, 65.0, 31.5),
    _row("VideoRFT-7B", "reasoning", 58.5, 65.6, 55.1, 38.0, 44.9, 42.7, 18.7),
    _row("Time-R1-7B", "reasoning", 58.9, 66.2, 56.0, 38.2, 60.5, 63.4, 34.7),
    _row("ReWatch-R1-7B", "reasoning", 58.8, 65.0, 53.6, 38.5, 60.1, 59.8, 20.2),
    _row("Video-Thinker-7B", "reasoning", 61.9, 65.3, 56.0, None, 65.2, 64.5, 29.0),
    _row("Qwen3-VL-8B", "agentic", 59.9, 68.4, 52.2, 33.1, 58.3, 68.0, 49.3),
    _row("Conan-7B", "agentic", 55.5, 62.8, 54.5, 38.2, 59.2, 64.0, 25.4),
    _row("LongVT-RFT-7B", "agentic", 59.5, 66.0, 54.7, 37.9, 59.4, 63.4, 23.4),
    _row("SAGE-7B", "agentic", 44.1, 52.4, 37.4, 31.8, 49.7, 55.7, 28.9),
    _row("VideoZoomer-7B", "agentic", 45.3, 48.3, 39.6, 22.9, 46.2, 61.6, None),
    _row("ParaVT-8B", "agentic", 62.1, 69.4, 60.4, 39.8, 65.0, 68.6, 50.1),
)
PARAVT = PUBLISHED[-1]

NOTES: dict[tuple[str, str], str] = {
    ("GPT-4o", "paravt_charades_sta"): "not reported",
    ("Gemini 1.5 Pro", "paravt_charades_sta"): "not reported",
    ("Video-Thinker-7B", "paravt_lvbench"): "withheld: the benchmark overlaps its training data",
    ("VideoZoomer-7B", "paravt_charades_sta"): "not measurable: its tool calls do not fit the grounding output",
}
"""(model, task) to why the table has no number there."""
