"""Questions of the generated benchmarks, and settings under which a random model calls once and answers."""

from pathlib import Path

from forms import answer_form, calls_form

from lmms_tasks.benchmarks import BENCHMARKS, Doc, Roots
from lmms_tasks.items import Item
from paravt_infer import Settings
from paravt_infer.rollout import Rollout
from training.world.seven import rows

SHORT = Settings(
    turn_regex=(calls_form((2, 5)), answer_form()), frames=2, window_frames=2, summary_tokens=4, max_new_tokens=200
)
CHOICES = ("paravt_videomme", "paravt_lvbench", "paravt_mlvu", "paravt_longvideobench")


def items(folder: Path, *tasks: str) -> list[Item]:
    """The items of some tasks of the generated benchmarks, 15 a task, as lmms-eval would number them."""
    found = []
    for task in tasks or CHOICES:
        benchmark = BENCHMARKS[task]
        docs: list[Doc] = [{**doc, "row": number} for number, doc in enumerate(rows(benchmark.folder))]
        found += [benchmark.item(doc, Roots(given={"": folder})) for doc in docs]
    return found


def said(rollout: Rollout) -> tuple[object, ...]:
    """Everything that a model said in an episode, and what came of it."""
    generated = [*rollout.turns, *(call.sub_agent for call in rollout.evidence if call.sub_agent)]
    return (rollout.question.id, rollout.status, rollout.answer, *(tuple(one.output_ids) for one in generated))
