"""VideoMME (`lmms-eval/Video-MME`, test), without and with subtitles: four options per question."""

import re
from dataclasses import replace

from lmms_tasks.results import EvalResult
from lmms_tasks.tasks.base import Benchmark, Doc, RowFields, Table1Column
from lmms_tasks.tasks.options import gold_letter, options_by_letter


def read_row(doc: Doc) -> RowFields:
    """Columns: videoID, question_id, question, options ("A. text"), answer (a letter), duration, domain."""
    options = options_by_letter(doc["options"])
    return RowFields(
        id=doc["question_id"],
        video=f"data/{doc['videoID']}.mp4",
        subtitles=f"subtitle/{doc['videoID']}.srt",
        text=doc["question"],
        options=options,
        gold=gold_letter(doc["answer"], options),
        groups={"duration": doc["duration"], "domain": doc["domain"]},
    )


def upstream(result: EvalResult, response: str) -> float:
    from lmms_eval.tasks.videomme.utils import videomme_process_results

    columns = ("question_id", "duration", "domain", "sub_category", "task_type", "videoID")
    doc = dict.fromkeys(columns, "") | result.item.groups | {"answer": result.item.gold}
    return float(videomme_process_results(doc, [response])["videomme_perception_score"]["score"])


def official_letter(answer: str) -> str:
    """The first capital A to D, "Best answer:" and "Best option:" aside (`eval_your_results.py` of
    thanku-all/parse_answer, named in the benchmark's README)."""
    return "".join(re.findall("[A-D]", re.sub("Best (?:answer|option):", "", answer))[:1])


WITHOUT_SUBTITLES = Benchmark(
    name="videomme",
    task="paravt_videomme",
    title="VideoMME without subtitles",
    order=1,
    hub="lmms-eval/Video-MME",  # formerly lmms-lab/Video-MME
    split="test",
    size=2700,  # arXiv 2405.21075
    videos="videomme",
    read_row=read_row,
    groups={
        "duration": ("short", "medium", "long"),
        "domain": (
            *("Knowledge", "Film & Television", "Sports Competition"),
            *("Artistic Performance", "Life Record", "Multilingual"),
        ),
    },
    upstream=upstream,
    official=official_letter,
    table1=Table1Column(
        title="VideoMME w/o sub",
        numbers=(71.9, 75.0, 55.7, 57.6, 50.4, 58.5, 58.9, 58.8, 61.9, 59.9, 55.5, 59.5, 44.1, 45.3, 62.1),
    ),
)
WITH_SUBTITLES = replace(
    WITHOUT_SUBTITLES,
    task="paravt_videomme_w_subtitle",
    title="VideoMME with subtitles",
    order=2,
    subtitles=True,
    table1=Table1Column(
        title="VideoMME w/ sub",
        numbers=(77.2, 81.3, 64.5, 66.0, 58.2, 65.6, 66.2, 65.0, 65.3, 68.4, 62.8, 66.0, 52.4, 48.3, 69.4),
    ),
)
process_docs, metric_list = WITHOUT_SUBTITLES.process_docs, WITHOUT_SUBTITLES.metric_list
process_docs_with_subtitles = WITH_SUBTITLES.process_docs
