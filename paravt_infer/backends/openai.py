"""Any OpenAI-compatible chat endpoint: messages in, text out. Not token-exact, so not for training."""

import asyncio
import base64
import json
import os
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from paravt_infer.backends.base import Backend, Generation, Request
from paravt_infer.backends.http import REQUEST_ERRORS, backend_error, http_client, json_object, retry_transient
from paravt_infer.chat import Message
from paravt_infer.errors import BackendError, ContextLimitError, SettingsError
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame


class OpenAIBackend(Backend):
    """A chat endpoint.

    Args:
        servers: base URLs, with or without ``/v1``; several are used in turn.
        model: the model's name at the endpoint; by default the first one it lists.
        api_key: sent as a bearer token; by default OPENAI_API_KEY from the environment.
        seconds: timeout of one generation.
    """

    name = "openai"
    exact_tokens = False

    def __init__(
        self, servers: list[str], *, model: str | None = None, api_key: str | None = None, seconds: float = 900.0
    ):
        self._servers = [url.rstrip("/").removesuffix("/v1") + "/v1" for url in servers]
        self.model = model or ""
        key = api_key or os.environ.get("OPENAI_API_KEY")
        self._client = http_client(seconds, headers={"Authorization": f"Bearer {key}"} if key else {})
        self._next_server = cycle(self._servers)

    async def start(self) -> None:
        if self.model:
            return
        try:
            listed = json_object(await self._client.get(self._servers[0] + "/models", timeout=30))["data"]
            self.model = listed[0]["id"]
            self.context_limit = listed[0].get("max_model_len")
        except REQUEST_ERRORS as error:
            raise backend_error(self._servers[0], error) from None
        except (KeyError, IndexError, TypeError):
            raise BackendError(f"{self._servers[0]} lists no model; name it with --model") from None

    @property
    def servers(self) -> list[str]:
        return list(self._servers)

    def frame_sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        # The endpoint's image processor is unknown: frames have the requested size, in steps of two pixels.
        return FrameSizing(multiple=2, min_pixels=min_pixels, max_pixels=max_pixels)

    def notes(self) -> list[str]:
        return ["not token-exact: the endpoint tokenises, so what the model was fed is not known"]

    async def generate(self, request: Request) -> Generation:
        if request.sampling.regex is not None:
            raise SettingsError("a chat endpoint cannot constrain text to a regex; use sglang or transformers")
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "messages": await asyncio.to_thread(_to_endpoint_messages, request.messages, bool(request.tools)),
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
        attempts, server = 0, self._servers[0]
        try:
            async for attempt in retry_transient():
                with attempt:
                    attempts, server = attempts + 1, next(self._next_server)
                    reply = json_object(await self._client.post(server + "/chat/completions", json=body))
                    choice = reply["choices"][0]
                    message = choice["message"]
        except REQUEST_ERRORS as error:
            failure = backend_error(server, error)
            raise ContextLimitError(str(failure)) if "context length" in str(failure) else failure from None
        except (KeyError, IndexError, TypeError) as error:
            raise BackendError(f"{server} sent no usable answer (missing {error}); is it a chat endpoint?") from None
        usage = reply.get("usage") or {}
        text, calls = message.get("content") or "", message.get("tool_calls") or []
        if reasoning := message.get("reasoning_content"):
            text = f"<think>{reasoning}</think>\n{text}"
        if sampling.stop and choice.get("finish_reason") == "stop" and not request.tools:
            text = _restore_stop(text, sampling.stop)
        return Generation(
            ids=[],
            text=text + "".join(_call_text(call) for call in calls),
            finish="length" if choice.get("finish_reason") == "length" else "stop",
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            server=server,
            attempts=attempts,
            calls=calls,
        )

    async def close(self) -> None:
        await self._client.aclose()


def _restore_stop(text: str, stops: Sequence[str]) -> str:
    """Endpoints remove the stop text; append it to a call that it ended."""
    for stop in stops:
        opening = stop.replace("</", "<")
        if text.rfind(opening) > text.rfind(stop):
            return text + stop
    return text


def _call_text(call: dict[str, Any]) -> str:
    """A structured call as text, in the form that models write."""
    function = call.get("function") or {}
    arguments = function.get("arguments") or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return f'\n<tool_call>\n{{"name": {json.dumps(function.get("name", ""))}, "arguments": {arguments}}}\n</tool_call>'


def _to_endpoint_messages(messages: Sequence[Message], native_tools: bool) -> list[dict[str, Any]]:
    """Messages in the endpoint's form. Tool turns become user turns unless the endpoint parsed the calls."""
    converted: list[dict[str, Any]] = []
    open_calls: list[str] = []
    for message in messages:
        if message.role == "assistant" and message.calls and native_tools:
            text = message.text.partition("\n<tool_call>\n")[0]
            converted.append({"role": "assistant", "content": text, "tool_calls": message.calls})
            open_calls = [str(call.get("id", "")) for call in message.calls]
        elif message.role == "tool" and open_calls and not message.frames:
            converted.append({"role": "tool", "tool_call_id": open_calls.pop(0), "content": message.text})
        elif message.role == "tool":
            parts = _parts(["<tool_response>\n", *message.parts, "\n</tool_response>"])
            if converted and converted[-1].get("from_tool"):
                converted[-1]["content"] += parts
            else:
                converted.append({"role": "user", "content": parts, "from_tool": True})
        elif message.role in ("system", "assistant"):
            converted.append({"role": message.role, "content": message.text})
        else:
            converted.append({"role": message.role, "content": _parts(message.parts)})
    for entry in converted:
        entry.pop("from_tool", None)
    return converted


def _parts(parts: Sequence[str | Frame]) -> list[dict[str, Any]]:
    def plain(part: str | Frame) -> dict[str, Any]:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        url = "data:image/png;base64," + base64.b64encode(part.png).decode()
        return {"type": "image_url", "image_url": {"url": url}}

    return [plain(part) for part in parts]
