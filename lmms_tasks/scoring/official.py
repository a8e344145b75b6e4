"""`official`: the rule that a benchmark's authors publish, where it differs from `paravt`'s.

It is applied to the answer's text (the `<answer>` block where there is one). Each benchmark's file states its rule:
`Benchmark.official`. Charades-STA's mean IoU and every task that is not a benchmark are scored as by `paravt`.
MLVU's average over task types belongs to the metric, which `summarise` computes.
"""

from lmms_tasks.results import EvalResult
from lmms_tasks.scoring.base import Scorer
from lmms_tasks.scoring.rules import paravt
from lmms_tasks.scoring.upstream import lmms_eval
from lmms_tasks.tasks import BENCHMARKS
from paravt_infer.errors import SettingsError


def official(result: EvalResult, judge: Scorer | None = None) -> float:
    """The score by the benchmark's own rule.

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
        return judge.score(result)
    return paravt(result)
