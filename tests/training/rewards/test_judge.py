"""The judge, against a real endpoint: what it is asked, what it says, and how its failures are seen."""

import asyncio
import json
from typing import Any

import pytest

from paravt_infer.errors import BackendError
from paravt_training.rewards.accuracy import GoldAnswer
from paravt_training.rewards.config import JudgeConfig, RewardConfig
from paravt_training.rewards.judge import open_reward_judge
from paravt_training.rewards.total import compute_reward
from tests.fixtures.reward_records import ANSWER, THOUGHT, record

GOLD = GoldAnswer(answer="the blue car", kind="open")
MADE = record(THOUGHT + '<answer>a "blue" van</answer>')


class Endpoint:
    """A chat endpoint that says one thing after another, or refuses everything."""

    def __init__(self, *verdicts: str, status: int = 200):
        self.verdicts, self.status = list(verdicts), status
        self.sent: list[dict[str, Any]] = []

    async def __aenter__(self) -> "Endpoint":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.config = JudgeConfig(server=f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}", model="judge")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
        self.sent.append(json.loads(await reader.readexactly(length) or b"{}"))
        body: dict[str, Any] = {"error": {"message": "no such model"}}
        if self.status == 200:
            body = {"choices": [{"message": {"content": self.verdicts.pop(0)}, "finish_reason": "stop"}]}
        data = json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n".encode())
        writer.write(data)
        await writer.drain()
        writer.close()


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("1", 1.0),
        (" 0.5\n", 0.5),
        ("0", 0.0),
        ("1.0.", 1.0),
        ("<think>a van is no car: 0</think>\n0.0", 0.0),
        ("10", None),
        ("0.7", None),
        ("I would say 1", None),
        ("1 or 0", None),
        ("", None),
    ],
)
async def test_a_verdict_is_one_of_three_numbers(said: str, score: float | None) -> None:
    async with Endpoint(said) as endpoint, open_reward_judge(endpoint.config) as judge:
        assert await judge.grade(MADE, GOLD) == score
        assert (judge.requests, judge.failures) == (1, score is None)


async def test_the_judge_is_told_the_question_and_both_answers_as_data() -> None:
    async with Endpoint("1") as endpoint, open_reward_judge(endpoint.config) as judge:
        await judge.grade(MADE, GOLD)
    [sent] = endpoint.sent
    [message] = sent["messages"]
    text = message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
    lines = text.splitlines()
    assert 'Question: "Which moves first?"' in lines and 'Right answer: "the blue car"' in lines
    assert r'Given answer: "a \"blue\" van"' in lines
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("judge", 0.0, 16)


async def test_what_needs_no_judge_is_not_asked() -> None:
    async with Endpoint() as endpoint, open_reward_judge(endpoint.config) as judge:
        assert await judge.grade(record(THOUGHT + ANSWER), GoldAnswer(answer="B", kind="choice")) is None
        assert await judge.grade(record("<answer></answer>"), GOLD) == 0
        assert judge.requests == 0 and not endpoint.sent


async def test_failures_are_counted_and_told_and_the_rule_grades(capsys: pytest.CaptureFixture[str]) -> None:
    async with Endpoint(status=400) as endpoint, open_reward_judge(endpoint.config) as judge:
        config = RewardConfig(accuracy="judge", judge=endpoint.config)
        for _ in range(5):
            got = compute_reward(MADE, GOLD, config, judged=await judge.grade(MADE, GOLD))
            assert got.parts["judge_failed"] == 1
            assert got.parts["accuracy"] == pytest.approx(0.5)  # token F1
        assert (judge.requests, judge.failures) == (5, 5)
    out, err = capsys.readouterr()
    assert out == ""
    first, *_, last = err.splitlines()
    assert first.startswith("judge: 1 of 1 failed, token F1 was used instead; the last: http://127.0.0.1:")
    assert first.endswith("answered 400: no such model")
    assert last.startswith("judge: 4 of 4 failed") and len(err.splitlines()) == 3


async def test_a_judge_without_a_name_must_be_listed() -> None:
    async with Endpoint(status=404) as endpoint:
        config = endpoint.config.model_copy(update={"model": None})
        with pytest.raises(BackendError, match="answered 404"):
            async with open_reward_judge(config):
                pass
