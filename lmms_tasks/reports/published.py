"""The paper's Table 1 as printed: its models here, each benchmark's column in that benchmark's own file."""

from typing import Literal

from lmms_tasks.tasks import BENCHMARKS

SOURCE = "ParaVT, arXiv 2605.20342, Table 1 (section 4.2)"

TABLE1_TITLES: dict[str, str] = {task: one.table1.title for task, one in BENCHMARKS.items() if one.table1}
"""Our task to the table's column. All are accuracies in percent, except Charades-STA: mean IoU in percent."""

Setting = Literal["proprietary", "direct", "reasoning", "agentic"]

MODELS: dict[str, Setting] = {
    "GPT-4o": "proprietary",
    "Gemini 1.5 Pro": "proprietary",
    "Qwen2.5-VL-7B": "direct",
    "Video-R1-7B": "reasoning",
    "VideoChat-R1-7B": "reasoning",
    "VideoRFT-7B": "reasoning",
    "Time-R1-7B": "reasoning",
    "ReWatch-R1-7B": "reasoning",
    "Video-Thinker-7B": "reasoning",
    "Qwen3-VL-8B": "agentic",
    "Conan-7B": "agentic",
    "LongVT-RFT-7B": "agentic",
    "SAGE-7B": "agentic",
    "VideoZoomer-7B": "agentic",
    "ParaVT-8B": "agentic",
}
"""The table's rows, from top to bottom: model, without its citation, to the block it is in. `proprietary` numbers are
from official reports under other protocols; the other blocks name the kind of prompt the model was evaluated with."""


PUBLISHED: dict[str, dict[str, float]] = {
    model: {
        task: number
        for task, one in BENCHMARKS.items()
        if one.table1 and (number := one.table1.numbers[row]) is not None
    }
    for row, model in enumerate(MODELS)
}
"""Model to task to percent; a cell without a number is left out, see `NOTES`."""
PARAVT = "ParaVT-8B"

NOTES: dict[tuple[str, str], str] = {
    (model, task): reason
    for task, one in BENCHMARKS.items()
    if one.table1
    for model, reason in one.table1.missing.items()
}
"""(model, task) to why the table has no number there."""
