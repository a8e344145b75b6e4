"""`official`: each benchmark's own rule, where it is another than that of `paravt`."""

import pytest

from lmms_tasks.scoring.benchmark_rules import official
from lmms_tasks.scoring.scorers import get_scorer
from paravt_infer.errors import SettingsError
from tests.fixtures.results import COLOURS, choice_result, open_result, span_result


@pytest.mark.parametrize(
    ("task", "response", "right"),
    [
        ("paravt_videomme", "The best answer is (C).", "C"),
        ("paravt_videomme", "Best answer: C", "C"),
        ("paravt_videomme", "A man walks, so C", "A"),
        ("paravt_videomme", "blue", ""),
        ("paravt_videomme_w_subtitle", "<answer>C</answer>", "C"),
        ("paravt_videomme", "", ""),
        ("paravt_lvbench", "(C) green", "C"),
        ("paravt_lvbench", "It is (C), not (A)", "C"),
        ("paravt_lvbench", "C. green", "C"),
        ("paravt_lvbench", "The answer is C", ""),
        ("paravt_mlvu", "C) green", "C"),
        ("paravt_mlvu", "(C) green", "C"),
        ("paravt_mlvu", "C", "C"),
        ("paravt_mlvu", "C. green", ""),
        ("paravt_longvideobench", "A man walks, so C", "A"),
        ("sample_world", "A man walks, so C", "C"),
    ],
)
def test_letters_are_read_by_the_authors_rule(task: str, response: str, right: str) -> None:
    assert "".join(gold for gold in COLOURS if official(choice_result(response, gold, task=task))) == right


def test_spans_are_scored_as_by_paravt() -> None:
    assert official(span_result("from 5 to 7.5 s")) == 0.5


def test_mmvu_needs_a_judge() -> None:
    with pytest.raises(SettingsError, match="MMVU's own rule is a language model's judgement; add a --server"):
        official(open_result("BFS", "BFS"))
    assert official(open_result("BFS", "BFS"), get_scorer("paravt")) == 1
