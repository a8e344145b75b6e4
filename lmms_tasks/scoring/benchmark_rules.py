"""`official` and `lmms-eval`: the rules that each benchmark's file states (`Benchmark.official`, `Benchmark.upstream`).

`official` is the rule that a benchmark's authors publish, where it differs from `paravt`'s, applied to the answer's
text (the `<answer>` block where there is one). MLVU's average over task types belongs to the metric.

`lmms-eval` calls the functions of lmms-eval's own tasks. A response is the last turn's text without its reasoning, as
lmms-eval would have stripped it; a result without turns gives its answer's text. Deviations from a run of lmms-eval,
so that scores can be computed one by one and repeated, are stated with each benchmark (LongVideoBench, MMVU).
Averages are `summarise`'s: that lmms-eval's Charades-STA merges rows with the same video, caption and span, and what
its MLVU makes of absent and unknown task types, concerns the metric and not the scorer.
"""

from lmms_tasks.results import EvalResult
from lmms_tasks.scoring.base import Scorer
from lmms_tasks.scoring.rules import paravt
from lmms_tasks.tasks import BENCHMARKS
from paravt_infer.errors import SettingsError

_REASONING = [["<think>", "</think>"], ["<analysis>", "</analysis>"]]  # lmms-eval's own default


def official(result: EvalResult, judge: Scorer | None = None) -> float:
    """The score by the benchmark's own rule; by `paravt`'s for Charades-STA and every task that is not a benchmark.

    Raises:
        SettingsError: the rule is a judge's (MMVU) and there is none.
    """
    benchmark = BENCHMARKS.get(result.item.task)
    rule = benchmark.official if benchmark else "paravt"
    if callable(rule):
        return float(rule(result.answer_text or "") == result.item.gold)
    if rule == "lmms-eval":
        return lmms_eval(result)
    if rule == "judge" and benchmark:
        if judge is None:
            title = benchmark.title
            raise SettingsError(f"scorer official: {title}'s own rule is a language model's judgement; add a --server")
        return judge.rule(result)
    return paravt(result)


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
        from lmms_eval.api.reasoning import strip_reasoning_tags

        turns = result.rollout.turns
        response = strip_reasoning_tags(turns[-1].response if turns else result.answer_text or "", _REASONING)
        return benchmark.upstream(result, str(response))
    except ImportError as error:
        raise SettingsError(f"scorer lmms-eval: {error}; pip install 'paravt-infer[eval]'") from None
