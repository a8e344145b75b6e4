"""`lmms-eval`: the scores of lmms-eval's own tasks. Its functions are called, not copied (`Benchmark.upstream`).

A response is the last turn's text without its reasoning, as lmms-eval would have stripped it; a result without turns
gives its answer's text. Differences from a run of lmms-eval, so that scores can be computed one by one and repeated,
are stated with each benchmark (LongVideoBench, MMVU). Averages are `summarise`'s: that lmms-eval's Charades-STA
merges rows with the same video, caption and span, and what its MLVU makes of absent and unknown task types, concerns
the metric and not the scorer.
"""

from lmms_tasks.results import EvalResult
from lmms_tasks.tasks import BENCHMARKS
from paravt_infer.errors import SettingsError

_REASONING = [["<think>", "</think>"], ["<analysis>", "</analysis>"]]  # lmms-eval's own default


def lmms_eval(result: EvalResult) -> float:
    """The score that lmms-eval 0.7.3's task gives.

    Raises:
        SettingsError: lmms-eval is not installed, or has no function for this task.
    """
    benchmark = BENCHMARKS.get(result.item.task)
    if benchmark is None or benchmark.upstream is None:
        scored = ", ".join(sorted(task for task, known in BENCHMARKS.items() if known.upstream))
        raise SettingsError(f"scorer lmms-eval has no function for task {result.item.task}; it scores {scored}")
    try:
        return benchmark.upstream(result, _response(result))
    except ImportError as error:
        raise SettingsError(f"scorer lmms-eval: {error}; pip install 'paravt-infer[eval]'") from None


def _response(result: EvalResult) -> str:
    from lmms_eval.api.reasoning import strip_reasoning_tags

    turns = result.rollout.turns
    return str(strip_reasoning_tags(turns[-1].response if turns else result.answer_text or "", _REASONING))
