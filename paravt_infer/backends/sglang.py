"""SGLang servers through their native `/generate`: token ids and frames in, token ids out."""

import asyncio
import base64
import contextlib
import re
import uuid
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from cachetools import LRUCache

from paravt_infer.backends.base import Backend, Generation, Request, processor_sizing
from paravt_infer.backends.broadcast import WeightBroadcastGroup, buckets
from paravt_infer.backends.http import REQUEST_ERRORS, backend_error, http_client, json_object, retry_transient
from paravt_infer.backends.rwlock import ReadWriteLock
from paravt_infer.errors import BackendError, ContextLimitError, ModelError
from paravt_infer.model import ModelFiles, load_model_files
from paravt_infer.video.sampling import FrameSizing

DRAIN_SECONDS = 60
"""How long a server may take to become idle before an update of its weights."""
AFFINITY_SIZE = 4096
"""How many episodes' servers are remembered."""


class SGLangBackend(Backend):
    """One or several SGLang servers of the same model, or a router in front of them.

    Args:
        servers: base URLs.
        model: folder or hub id of the model's files; by default what the first server reports.
        seconds: timeout of one generation.

    The main turns of an episode stay on one server, where their prefix is cached; other requests go to the server with
    the fewest in flight. Cancelling a call aborts it on the server.
    """

    name = "sglang"
    exact_tokens = True
    accepts_tensors = True

    def __init__(self, servers: list[str], *, model: str | None = None, seconds: float = 900.0):
        if not servers:
            raise BackendError("no server URL was given; give one with --server")
        self._servers = [url.rstrip("/") for url in servers]
        self._requested_model = model
        self._client = http_client(seconds)
        self._in_flight: Counter[str] = Counter()
        self._affinity: LRUCache[str, str] = LRUCache(AFFINITY_SIZE)
        self._files: ModelFiles | None = None
        self._bounds = (1, 1 << 30)
        self._versions: dict[str, str] = {}
        self._notes: list[str] = []
        self._weights_lock = ReadWriteLock()
        self._group: WeightBroadcastGroup | None = None
        self._image_salt = b""
        """Added to each frame's bytes; changes with the weights, so that the server's image cache is not hit."""

    async def start(self) -> None:
        model_info = await self._info(self._servers[0], "/model_info", "/get_model_info")
        try:
            server_info = await self._info(self._servers[0], "/server_info", "/get_server_info")
        except BackendError:  # a router may not forward it
            server_info = {}
        self.model = self._requested_model or model_info.get("tokenizer_path") or model_info.get("model_path") or ""
        try:
            files = await asyncio.to_thread(load_model_files, self.model)
        except ModelError as error:
            raise ModelError(f"{error} (the server's model; give the path of its files with --model)") from None
        self._files, self.chat = files, files.chat
        limits = (server_info.get("context_length"), server_info.get("max_total_num_tokens"), files.context_limit)
        self.context_limit = min((int(limit) for limit in limits if limit), default=None)
        self._bounds = self._pixel_bounds(server_info, files)
        if "version" in server_info:
            self._versions["sglang (server)"] = str(server_info["version"])
        if not server_info:
            self._notes.append("the server does not report its context limit and pixel bounds; the model's are used")
        for server in self._servers[1:]:
            other = await self._info(server, "/model_info", "/get_model_info")
            if other.get("model_path") != model_info.get("model_path"):
                raise BackendError(
                    f"{server} serves {other.get('model_path')} but {self._servers[0]} serves "
                    f"{model_info.get('model_path')}; all servers must serve one model"
                )

    def _pixel_bounds(self, server_info: dict[str, Any], files: ModelFiles) -> tuple[int, int]:
        """Bounds within which the server does not resize frames: its start-up setting, else the model's."""
        image = (server_info.get("mm_process_config") or {}).get("image") or {}
        size = image.get("size") or {}
        low = image.get("min_pixels") or size.get("shortest_edge") or files.min_pixels
        high = image.get("max_pixels") or size.get("longest_edge") or files.max_pixels
        return (1, 1 << 30) if image.get("do_resize") is False else (int(low), int(high))

    async def _info(self, server: str, *paths: str) -> dict[str, Any]:
        """The JSON of the first of these paths that the server knows (older versions have other ones)."""
        error: Exception | None = None
        for path in paths:
            try:
                async for attempt in retry_transient():
                    with attempt:
                        return json_object(await self._client.get(server + path, timeout=30))
            except REQUEST_ERRORS as caught:
                error = caught
                if not isinstance(caught, httpx.HTTPStatusError):
                    break
        assert error is not None
        raise backend_error(server, error)

    @property
    def servers(self) -> list[str]:
        return list(self._servers)

    def versions(self) -> dict[str, str]:
        return dict(self._versions)

    def notes(self) -> list[str]:
        return list(self._notes)

    def frame_sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        assert self._files is not None, "start() comes first"
        low, high = self._bounds
        sizing = processor_sizing(
            multiple=self._files.multiple,
            floor=low,
            # A server may allow larger frames than the model was trained on.
            ceiling=max(low, min(high, self._files.max_pixels)),
            min_pixels=min_pixels,
            max_pixels=max_pixels,
        )
        if sizing.max_pixels > max_pixels:
            note = (
                f"frames have {low} pixels instead of {max_pixels}: the server enlarges smaller ones, unless it is "
                "started with --mm-process-config"
            )
            if note not in self._notes:
                self._notes.append(note)
        return sizing

    def _choose_server(self, affinity: str, avoid: str | None) -> str:
        """The server that has the prefix cached, else the one with the fewest requests; `avoid` has just failed."""
        cached = self._affinity.get(affinity) if affinity else None
        if cached and cached != avoid:
            return cached
        candidates = [server for server in self._servers if server != avoid] or self._servers
        server = min(candidates, key=lambda server: self._in_flight[server])
        if affinity:
            self._affinity[affinity] = server
        return server

    async def generate(self, request: Request) -> Generation:
        async with self._weights_lock.reading():
            return await self._generate(request)

    async def _generate(self, request: Request) -> Generation:
        assert self._files is not None and self.chat is not None, "start() comes first"
        visual = [self._files.visual_tokens(frame) for frame in request.frames]
        expected = len(request.ids) + sum(visual) - len(visual)
        sampling = self.fit_to_context(request.sampling, expected)
        body: dict[str, Any] = {
            "input_ids": request.ids,
            "return_logprob": sampling.logprobs,
            "sampling_params": {
                "max_new_tokens": sampling.max_new_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                # As expressions: SGLang looks for a stop text that is one token in the last token only, but the
                # model may spell it in several.
                "stop_regex": [re.escape(stop) for stop in sampling.stop],
                "no_stop_trim": True,
                "skip_special_tokens": False,
                "spaces_between_special_tokens": False,
                # A generated placeholder would be taken for a frame in the next turn.
                "logit_bias": {str(token): -1e4 for token in self.chat.media_token_ids},
            },
        }
        if sampling.regex is not None:
            body["sampling_params"]["regex"] = sampling.regex
        if sampling.seed is not None:
            body["sampling_params"]["sampling_seed"] = sampling.seed
        if request.frames:
            body["image_data"] = await asyncio.to_thread(
                lambda: [base64.b64encode(_salted(frame.png, self._image_salt)).decode() for frame in request.frames]
            )
        server, attempts = self._servers[0], 0
        failed: str | None = None
        try:
            async for attempt in retry_transient():
                with attempt:
                    attempts += 1
                    server = failed = self._choose_server(request.affinity, failed)
                    reply = await self._send(server, {**body, "rid": f"{request.id}-{attempts}"})
                    meta, ids = reply["meta_info"], list(reply["output_ids"])
        except REQUEST_ERRORS as error:
            failure = backend_error(server, error)
            raise ContextLimitError(str(failure)) if "maximum context length" in str(failure) else failure from None
        except KeyError as error:
            raise BackendError(f"{server} sent an answer without {error}; is it an SGLang server?") from None
        if meta["prompt_tokens"] != expected:
            raise BackendError(
                f"{server} counted {meta['prompt_tokens']} prompt tokens instead of {expected}: it resizes frames; "
                f"start it with --mm-process-config '{mm_process_config(*self._bounds)}'"
            )
        logprobs = None
        if sampling.logprobs:
            logprobs = [float(entry[0]) for entry in meta["output_token_logprobs"]]
        return Generation(
            ids=ids,
            text=self.chat.decode(ids),
            finish=(meta.get("finish_reason") or {}).get("type", "stop"),
            prompt_tokens=expected,
            visual_tokens=sum(visual),
            cached_tokens=meta.get("cached_tokens"),
            logprobs=logprobs,
            weight_version=meta.get("weight_version"),
            server=server,
            attempts=attempts,
        )

    async def _send(self, server: str, body: dict[str, Any]) -> dict[str, Any]:
        self._in_flight[server] += 1
        try:
            return json_object(await self._client.post(server + "/generate", json=body))
        except asyncio.CancelledError:
            await asyncio.shield(self._abort(server, body["rid"]))
            raise
        finally:
            self._in_flight[server] -= 1

    async def _abort(self, server: str, request_id: str) -> None:
        with contextlib.suppress(httpx.HTTPError):
            await self._client.post(server + "/abort_request", json={"rid": request_id}, timeout=5)

    async def update_weights(
        self, version: str, *, folder: Path | None = None, tensors: Mapping[str, Any] | None = None
    ) -> None:
        if folder is None and tensors is None:
            raise BackendError("new weights need a folder that the servers can read, or tensors")
        async with self._weights_lock.writing():
            await asyncio.gather(*map(self._drain, self._servers))
            if tensors is not None:
                await self._broadcast(version, tensors)
            else:
                body = {"model_path": str(folder), "weight_version": version, "flush_cache": True}
                await self._post_all("/update_weights_from_disk", body)
            await asyncio.gather(*(self._confirm_version(server, version) for server in self._servers))
            # SGLang caches image embeddings by a hash of the image's bytes, and a flush does not clear them.
            self._image_salt = uuid.uuid4().hex.encode()

    async def _drain(self, server: str) -> None:
        """Wait until a server is idle: it replies just before a request is done, and refuses updates until then.

        A server that cannot be reached fails at the update.
        """
        with contextlib.suppress(httpx.HTTPError):
            await self._client.post(server + "/flush_cache", params={"timeout": DRAIN_SECONDS})

    async def _broadcast(self, version: str, tensors: Mapping[str, Any]) -> None:
        """All tensors to all servers, a bucket at a time."""
        group, self._group = self._group or await self._join_group(), None  # a group that failed is not used again
        await self._post_all("/begin_weight_update", {})
        try:
            *_, last = all_buckets = list(buckets(tensors))
            for bucket in all_buckets:
                body = {
                    "names": list(bucket),
                    "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in bucket.values()],
                    "shapes": [list(tensor.shape) for tensor in bucket.values()],
                    "group_name": group.name,
                    "flush_cache": bucket is last,
                    "weight_version": version if bucket is last else None,
                }
                received = self._post_all("/update_weights_from_distributed", body)
                await asyncio.gather(received, asyncio.to_thread(group.broadcast, list(bucket.values())))
        finally:
            await self._post_all("/end_weight_update", {})
        self._group = group

    async def _join_group(self) -> WeightBroadcastGroup:
        """A process group with all GPUs of all servers."""
        infos = [await self._info(server, "/server_info", "/get_server_info") for server in self._servers]
        sizes = [int(info.get("tp_size") or 1) for info in infos]
        device = str(infos[0].get("device") or "cuda")
        group = WeightBroadcastGroup(dict(zip(self._servers, sizes, strict=True)), device=device)
        joining = [self._post(server, "/init_weights_update_group", body) for server, body in group.join_requests()]
        await asyncio.gather(asyncio.to_thread(group.join), *joining)
        return group

    async def _post_all(self, path: str, body: dict[str, Any]) -> None:
        await asyncio.gather(*(self._post(server, path, body) for server in self._servers))

    async def _post(self, server: str, path: str, body: dict[str, Any]) -> None:
        """One request of a weight update. Raises BackendError unless the server reports success."""
        try:
            reply = json_object(await self._client.post(server + path, json=body))
        except (httpx.HTTPError, ValueError) as error:
            raise backend_error(server, error) from None
        if not reply.get("success"):
            line = " ".join(str(reply.get("message")).split())[:200]
            where = f" in {body['model_path']}" if "model_path" in body else ""
            raise BackendError(f"{server} did not take the weights{where} ({line})")

    async def _confirm_version(self, server: str, version: str) -> None:
        actual = (await self._info(server, "/model_info", "/get_model_info")).get("weight_version")
        if actual != version:
            raise BackendError(f"{server} reports weight version {actual}, not {version}")

    async def close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            leaving = self._post_all("/destroy_weights_update_group", {"group_name": group.name})
            with contextlib.suppress(BackendError):  # a server that has stopped has left, too
                await asyncio.gather(asyncio.to_thread(group.destroy), leaving)
        await self._client.aclose()


def _salted(png: bytes, salt: bytes) -> bytes:
    """The same image in other bytes: `salt` as a comment before the end chunk of the PNG, which has 12 bytes."""
    if not salt:
        return png
    chunk = b"tEXtComment\0" + salt
    return png[:-12] + (len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big") + png[-12:]


def mm_process_config(min_pixels: int, max_pixels: int) -> str:
    """The value of --mm-process-config with which a server does not resize frames within these bounds."""
    return f'{{"image": {{"size": {{"shortest_edge": {min_pixels}, "longest_edge": {max_pixels}}}}}}}'
