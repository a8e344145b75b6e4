"""Any OpenAI-compatible chat endpoint: messages in, text out. Not token-exact: training refuses it."""

import asyncio
import base64
import json
import os
from collections.abc import Sequence
from typing import Any

import httpx

from paravt_infer.backends.base import Backend, Generation, Request
from paravt_infer.backends.http import backend_error, json_object, retry_transient
from paravt_infer.chat import Message
from paravt_infer.errors import BackendError, ContextLimitError, SettingsError
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame


class OpenAIBackend(Backend):
    """A chat endpoint.

    Args:
        servers: base URLs, with or without ``/v1``; several are used in turn.
        model: the endpoint's name of the model; by default the first it lists.
        api_key: sent as a bearer token; by default the environment's OPENAI_API_KEY.
    """

    name = "openai"
    exact_tokens = False

    def __init__(
        self,
        servers: list[str],
        *,
        model: str | None = None,
        api_key: str | None = None,
        seconds: float = 900.0,
    ):
        self._servers = [
            url.rstrip("/") if url.rstrip("/").endswith("/v1") else url.rstrip("/") + "/v1" for url in servers
        ]
        self.model = model or ""
        key = api_key or os.environ.get("OPENAI_API_KEY")
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(seconds, connect=10.0),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None),
        )
        self._sent = 0

    async def start(self) -> None:
        if self.model:
            return
        try:
            listed = json_object(await self._client.get(self._servers[0] + "/models", timeout=30))["data"]
            self.model = listed[0]["id"]
            self.context_limit = listed[0].get("max_model_len")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise backend_error(self._servers[0], error) from None
        except (KeyError, IndexError, TypeError):
            raise BackendError(f"{self._servers[0]} lists no model; name it with --model") from None

    @property
    def servers(self) -> list[str]:
        return list(self._servers)

    def frame_sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        # The endpoint's processor is not known: frames go out at the asked size, in steps of two pixels.
        return FrameSizing(multiple=2, min_pixels=min_pixels, max_pixels=max_pixels)

    def notes(self) -> list[str]:
        return ["not token-exact: the endpoint tokenises, and what it fed the model is not known"]

    async def generate(self, request: Request) -> Generation:
        if request.sampling.regex is not None:
            raise SettingsError("a chat endpoint cannot be held to a regular expression; use sglang or transformers")
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "messages": await asyncio.to_thread(_plain_messages, request.messages, bool(request.tools)),
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.stop and not request.tools:
            body["stop"] = list(sampling.stop)
        if request.tools:
            body["tools"] = request.tools
        tried = 0
        server = self._servers[0]
        try:
            async for attempt in retry_transient():
                with attempt:
                    server = self._servers[self._sent % len(self._servers)]
                    self._sent += 1
                    tried += 1
                    reply = json_object(await self._client.post(server + "/chat/completions", json=body))
                    choice = reply["choices"][0]
                    said = choice["message"]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            plain = backend_error(server, error)
            raise ContextLimitError(str(plain)) if "context length" in str(plain) else plain from None
        except (KeyError, IndexError, TypeError) as error:
            raise BackendError(f"{server} sent no usable answer (missing {error}); is it a chat endpoint?") from None
        usage = reply.get("usage") or {}
        text, calls = said.get("content") or "", said.get("tool_calls") or []
        thought = said.get("reasoning_content")
        if thought:
            text = f"<think>{thought}</think>\n{text}"
        if sampling.stop and choice.get("finish_reason") == "stop" and not request.tools:
            text = _with_stop(text, sampling.stop)
        return Generation(
            ids=[],
            text=text + "".join(_call_text(call) for call in calls),
            finish="length" if choice.get("finish_reason") == "length" else "stop",
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            server=server,
            attempts=tried,
            calls=calls,
        )

    async def close(self) -> None:
        await self._client.aclose()


def _with_stop(text: str, stops: Sequence[str]) -> str:
    """Endpoints cut the stop text off; a call it ended gets its end back."""
    for stop in stops:
        opening = stop.replace("</", "<")
        if text.rfind(opening) > text.rfind(stop):
            return text + stop
    return text


def _call_text(call: dict[str, Any]) -> str:
    """A structured call as the text that the model wrote or would have written."""
    function = call.get("function") or {}
    arguments = function.get("arguments") or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return f'\n<tool_call>\n{{"name": {json.dumps(function.get("name", ""))}, "arguments": {arguments}}}\n</tool_call>'


def _plain_messages(messages: Sequence[Message], native_tools: bool) -> list[dict[str, Any]]:
    """Messages in the endpoint's form. Tool turns are user turns unless the endpoint parsed the calls itself."""
    plain: list[dict[str, Any]] = []
    open_calls: list[str] = []
    for message in messages:
        if message.role == "assistant" and message.calls and native_tools:
            text = message.text.partition("\n<tool_call>\n")[0]
            plain.append({"role": "assistant", "content": text, "tool_calls": message.calls})
            open_calls = [str(call.get("id", "")) for call in message.calls]
        elif message.role == "tool" and open_calls and not message.frames:
            plain.append({"role": "tool", "tool_call_id": open_calls.pop(0), "content": message.text})
        elif message.role == "tool":
            parts = _parts(["<tool_response>\n", *message.parts, "\n</tool_response>"])
            if plain and plain[-1].get("from_tool"):
                plain[-1]["content"] += parts
            else:
                plain.append({"role": "user", "content": parts, "from_tool": True})
        elif message.role in ("system", "assistant"):
            plain.append({"role": message.role, "content": message.text})
        else:
            plain.append({"role": message.role, "content": _parts(message.parts)})
    for message_ in plain:
        message_.pop("from_tool", None)
    return plain


def _parts(parts: Sequence[str | Frame]) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64," + base64.b64encode(part.png).decode()},
        }
        for part in parts
    ]
