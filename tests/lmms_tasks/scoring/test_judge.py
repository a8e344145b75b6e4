"""`judge`, against a real chat endpoint: what it is asked, what counts as a verdict, and that a fault is no score."""

import hashlib

import pytest

from lmms_tasks.scoring.scorers import get_scorer
from paravt_infer.errors import BackendError
from tests.fixtures.judge_server import judge_server
from tests.fixtures.results import choice_result, open_result, span_result


def test_it_is_asked_about_the_question_the_gold_and_the_answer() -> None:
    with judge_server(lambda prompt: "They mean the same.\nVERDICT: RIGHT") as server:
        judge = get_scorer("judge", server=server.url, model="big-judge")
        assert judge.score(open_result("<think>hm</think><answer>a dog, {really}</answer>", "canine", text="Who?")) == 1
        assert judge.score(choice_result("blue", "B")) == 1
    first, second = server.prompts
    assert "Question: Who?\n" in first and "Right answer: canine\n" in first and "a dog, {really}" in first
    assert "(A) red\n(B) blue\n" in second and "Right answer: (B) blue" in second
    assert [(body["model"], body["temperature"]) for body in server.sent] == [("big-judge", 0.0)] * 2


def test_its_model_and_prompt_are_on_record() -> None:
    with judge_server(lambda prompt: "VERDICT: RIGHT") as server:
        facts = get_scorer("judge", server=server.url).facts
    assert (facts["server"], facts["model"]) == (server.url, "small-judge")
    assert hashlib.sha256(facts["prompt"].encode()).hexdigest() == facts["prompt_sha256"]
    assert "{question}" in facts["prompt"]


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("VERDICT: RIGHT", 1),
        ("It differs.\n**VERDICT: WRONG**", 0),
        ("verdict: right", 1),
        ("<think>VERDICT: RIGHT? no</think>VERDICT: WRONG", 0),
        ("VERDICT: RIGHT, or rather: VERDICT: WRONG", 0),
    ],
)
def test_the_last_verdict_counts(reply: str, score: float) -> None:
    with judge_server(lambda prompt: reply) as server:
        assert get_scorer("judge", server=server.url).score(open_result("a dog", "canine")) == score


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("Perhaps.", r"judge, question q7: no verdict in its reply \(... 'Perhaps.'\)"),
        ("VERDICT: RIGHTEOUS", "judge, question q7: no verdict in its reply"),
        (404, "judge, question q7: http://.*/v1 answered 404: no such judge"),
    ],
)
def test_a_judge_that_fails_is_an_error_and_no_score(reply: str | int, fault: str) -> None:
    with judge_server(lambda prompt: reply) as server, pytest.raises(BackendError, match=fault):
        get_scorer("judge", server=server.url).score(open_result("a dog", "canine", id="q7"))


def test_spans_and_missing_answers_need_no_judge() -> None:
    with judge_server(lambda prompt: 404) as server:
        judge = get_scorer("judge", server=server.url)
        assert (judge.score(span_result("[5, 7.5]")), judge.score(choice_result("", "B"))) == (0.5, 0)
    assert server.sent == []


def test_official_asks_it_about_mmvu_alone() -> None:
    with judge_server(lambda prompt: "VERDICT: RIGHT") as server:
        official = get_scorer("official", server=server.url)
        assert official.score(open_result("a dog", "canine")) == 1
        assert official.score(choice_result("A", "B")) == 0
    assert len(server.sent) == 1 and official.facts["model"] == "small-judge"


def test_an_endpoint_that_is_down_is_one_line() -> None:
    with pytest.raises(BackendError, match=r"http://127.0.0.1:9/v1 cannot be reached"):
        get_scorer("judge", server="http://127.0.0.1:9")
