"""The chat-endpoint backend: against the real server's own endpoint, and against one that parses calls itself."""

import asyncio
import json
from typing import Any

import pytest

from paravt_infer import Engine, Settings
from paravt_infer.backends.launch import SGLangServer
from paravt_infer.backends.openai import OpenAIBackend
from paravt_infer.errors import BackendError, SettingsError
from tests.fixtures.responses import call_text


class Endpoint:
    """A chat endpoint that answers with prepared messages and keeps what it was sent."""

    def __init__(self, *messages: dict[str, Any], status: int = 200):
        self.messages, self.status = list(messages), status
        self.sent: list[dict[str, Any]] = []

    async def __aenter__(self) -> "Endpoint":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        self.sent.append(json.loads(await reader.readexactly(length)))
        body: dict[str, Any] = {"error": {"message": "no such model"}}
        if self.status == 200:
            # A sub-agent's request carries no tools and no system prompt.
            sub = len(self.sent[-1]["messages"]) == 1 and "tools" not in self.sent[-1]
            said = {"content": "a red circle."} if sub else self.messages.pop(0)
            body = {"choices": [{"message": said, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9}}
        data = json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n".encode())
        writer.write(data)
        await writer.drain()
        writer.close()


def native_call(number: int, start: float, end: float) -> dict[str, Any]:
    arguments = json.dumps({"video_path": "v", "start_time": start, "end_time": end})
    return {"id": f"call-{number}", "type": "function", "function": {"name": "crop_video", "arguments": arguments}}


async def test_a_real_chat_endpoint_answers_with_frames_in_the_prompt(server: SGLangServer, video: str) -> None:
    settings = Settings(protocol="direct", frames=4, max_new_tokens=16)
    async with Engine(OpenAIBackend([server.url]), settings) as engine:
        rollout = await engine.ask(video, "What is it?")
    [turn] = rollout.turns
    assert turn.finish == "length" and turn.prompt_tokens > 4 * 4
    assert rollout.backend.exact_tokens is False
    assert turn.output_ids == [] and "not token-exact" in rollout.backend.notes[0]


async def test_calls_in_the_text_work_as_with_any_backend(video: str) -> None:
    turns = [{"content": call_text(1, 3) + call_text(5, 8)}, {"content": "<answer>A</answer>"}]
    async with Endpoint(*turns) as endpoint, Engine(OpenAIBackend([endpoint.url], model="m")) as engine:
        rollout = await engine.ask(video, "Which?", options=["red", "blue"])
    assert (rollout.answer, [call.status for call in rollout.evidence]) == ("A", ["ok", "ok"])
    fed_back = endpoint.sent[-1]["messages"][-1]
    assert fed_back["role"] == "user" and "red circle" in fed_back["content"][1]["text"]


async def test_calls_that_the_endpoint_parsed_are_answered_by_their_ids(video: str) -> None:
    turns = [{"content": None, "tool_calls": [native_call(0, 1, 3), native_call(1, 5, 8)]}, {"content": "It is A."}]
    settings = Settings(protocol="tools")
    async with Endpoint(*turns) as endpoint, Engine(OpenAIBackend([endpoint.url], model="m"), settings) as engine:
        rollout = await engine.ask(video, "Which?", options=["red", "blue"])
    assert [call.used for call in rollout.evidence] == [[1.0, 3.0], [5.0, 8.0]]
    assistant, *responses = endpoint.sent[-1]["messages"][-3:]
    assert [call["id"] for call in assistant["tool_calls"]] == ["call-0", "call-1"]
    assert [(m["role"], m["tool_call_id"]) for m in responses] == [("tool", "call-0"), ("tool", "call-1")]
    assert rollout.answer == "A"


async def test_frames_as_evidence_go_back_as_pictures(video: str) -> None:
    turns = [{"content": call_text(1, 3)}, {"content": "<answer>B</answer>"}]
    settings = Settings(evidence="frames")
    async with Endpoint(*turns) as endpoint, Engine(OpenAIBackend([endpoint.url], model="m"), settings) as engine:
        rollout = await engine.ask(video, "Which?", options=["red", "blue"])
    kinds = [part["type"] for part in endpoint.sent[-1]["messages"][-1]["content"]]
    assert kinds.count("image_url") == 2 and rollout.answer == "B"


async def test_a_refusal_is_an_error_in_the_record(video: str) -> None:
    async with Endpoint(status=404) as endpoint, Engine(OpenAIBackend([endpoint.url], model="m")) as engine:
        rollout = await engine.ask(video, "Which?")
    assert rollout.status == "failed" and "answered 404: no such model" in (rollout.error or "")
    assert len(endpoint.sent) == 1


async def test_what_a_chat_endpoint_cannot_do_is_told(video: str) -> None:
    async with Engine(OpenAIBackend(["http://127.0.0.1:9"], model="m")) as engine:
        with pytest.raises(SettingsError, match="think_prefix: needs a token-exact backend"):
            await engine.ask(video, "Which?", settings=Settings(think_prefix="every"))


async def test_an_endpoint_that_is_down_is_one_line() -> None:
    with pytest.raises(BackendError, match=r"http://127.0.0.1:9/v1 cannot be reached"):
        await OpenAIBackend(["http://127.0.0.1:9"]).start()
