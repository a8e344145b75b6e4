"""`official`: the rule that a benchmark's authors publish, where it is another than that of `paravt`.

It is applied to the text that was answered (the `<answer>` block where there is one), in these tasks:

- VideoMME, with and without subtitles: the first capital A to D, "Best answer:" and "Best option:" aside
  (`eval_your_results.py` of thanku-all/parse_answer, named in the benchmark's README).
- LongVideoBench: evaluated by lmms-eval, says its README; so the scorer `lmms-eval`, on the last turn's text.
- LVBench: the first character in the first brackets; without brackets that of the text (THUDM/LVBench,
  `lvbench/utils/answer_util.py`).
- MLVU: the character before the first ")"; without one the whole text must be the letter (JUNJIE99/MLVU,
  `evaluation/multiple_choice_evaluation/choice_bench.py`).
- MMVU: a language model judges both kinds of question (yale-nlp/MMVU, `utils/eval_utils.py`). The authors ask
  GPT-4o in words of their own; here it is the scorer `judge`, so a server must be named.

Charades-STA's mean IoU and every other task are scored as by `paravt`. MLVU's average over task types is a
matter of the metric, which `summarise` takes.
"""

import re

from lmms_tasks.items import EvalResult
from lmms_tasks.scoring.base import Scorer, said
from lmms_tasks.scoring.rules import paravt
from lmms_tasks.scoring.upstream import lmms_eval
from paravt_infer.errors import SettingsError


def official(row: EvalResult, judge: Scorer | None = None) -> float:
    """The score by the benchmark's own rule.

    Raises:
        SettingsError: the rule is a judge's (MMVU) and there is none.
    """
    task = row.item.task
    if task == "paravt_longvideobench":
        return lmms_eval(row)
    if task == "paravt_mmvu":
        if judge is None:
            raise SettingsError("scorer official: MMVU's own rule is a language model's judgement; name a --server")
        return judge.score(row)
    if task not in _LETTERS:
        return paravt(row)
    return float(_LETTERS[task](said(row) or "") == row.item.gold)


def _videomme(answer: str) -> str:
    return "".join(re.findall("[A-D]", re.sub("Best (?:answer|option):", "", answer))[:1])


def _lvbench(answer: str) -> str:
    before, _, _ = answer.partition(")")
    return (before.split("(")[1] if "(" in before else before).strip()[:1]


def _mlvu(answer: str) -> str:
    before, closed, _ = answer.partition(")")
    return before[-1:] if closed else answer


_LETTERS = {
    "paravt_videomme": _videomme,
    "paravt_videomme_w_subtitle": _videomme,
    "paravt_lvbench": _lvbench,
    "paravt_mlvu": _mlvu,
}
