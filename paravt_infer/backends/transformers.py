"""transformers in this process: no server, CPU or GPU, token-exact, with static batching of waiting requests."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paravt_infer.backends.base import Backend, Generation, Request, SamplingParams, processor_sizing
from paravt_infer.backends.rwlock import ReadWriteLock
from paravt_infer.errors import BackendError, ModelError, first_line
from paravt_infer.model import ModelFiles, load_model_files, load_pretrained
from paravt_infer.video.sampling import FrameSizing

MODEL = "AutoModelForImageTextToText"
MAX_BATCH = 16
GATHER_SECONDS = 0.01
"""How long a batch waits for more requests: the sub-agents of a turn arrive within this."""


@dataclass(kw_only=True)
class _Job:
    request: Request
    sampling: SamplingParams
    prompt_tokens: int
    visual_tokens: int
    done: "asyncio.Future[Generation]"
    cancelled: threading.Event = field(default_factory=threading.Event)


class TransformersBackend(Backend):
    """A model loaded into this process by transformers.

    Args:
        model: folder or hub id.
        device: `cpu`, `cuda`, `cuda:1` ...; by default CUDA if available.
        max_batch: maximum batch size.
    """

    name = "transformers"
    exact_tokens = True
    batches_requests = True
    accepts_tensors = True

    def __init__(self, model: str, *, device: str | None = None, max_batch: int = MAX_BATCH):
        self.model = model
        self.weight_version: str | None = None
        self._weights_lock = ReadWriteLock()
        self.device = device
        self.max_batch = max_batch
        self.batch_sizes: list[int] = []
        """The size of each batch so far."""
        self._files: ModelFiles | None = None
        self._network: Any = None
        self._waiting: list[_Job] = []
        self._runner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._files = await asyncio.to_thread(load_model_files, self.model)
        self.chat, self.context_limit = self._files.chat, self._files.context_limit
        self._network = await asyncio.to_thread(self._load)

    def _load(self) -> Any:
        import torch

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        network = load_pretrained(self.model, MODEL, dtype="auto")
        try:
            return network.to(device).eval()
        except (RuntimeError, AssertionError) as error:
            raise ModelError(
                f"{self.model}: cannot be moved to {device} ({first_line(error)}); try --device cpu"
            ) from None

    def frame_sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        assert self._files is not None, "start() comes first"
        files = self._files
        # Frames are not resized by the processor here, so its lower bound does not apply. Its upper bound is what the
        # model was trained with.
        return processor_sizing(
            multiple=files.multiple, floor=1, ceiling=files.max_pixels, min_pixels=min_pixels, max_pixels=max_pixels
        )

    def versions(self) -> dict[str, str]:
        import torch
        import transformers

        return {"torch": torch.__version__, "transformers": transformers.__version__}

    async def generate(self, request: Request) -> Generation:
        async with self._weights_lock.reading():
            return await self._generate(request)

    async def _generate(self, request: Request) -> Generation:
        assert self._files is not None, "start() comes first"
        visual = sum(map(self._files.visual_tokens, request.frames))
        prompt_tokens = len(request.ids) + visual - len(request.frames)
        sampling = self.fit_to_context(request.sampling, prompt_tokens)
        done = asyncio.get_running_loop().create_future()
        job = _Job(request=request, sampling=sampling, prompt_tokens=prompt_tokens, visual_tokens=visual, done=done)
        self._waiting.append(job)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run_batches())
        try:
            return await job.done
        except asyncio.CancelledError:
            job.cancelled.set()  # stops its row at the next token
            raise

    async def _run_batches(self) -> None:
        """Run batches until no request waits."""
        while self._waiting:
            await asyncio.sleep(GATHER_SECONDS)
            batch, self._waiting = self._waiting[: self.max_batch], self._waiting[self.max_batch :]
            batch = [job for job in batch if not job.cancelled.is_set()]
            if not batch:
                continue
            self.batch_sizes.append(len(batch))
            outcome: list[Generation] | BackendError
            try:
                outcome = await asyncio.to_thread(self._generate_batch, batch)
            except Exception as error:  # whatever it is, the requests must not wait for ever
                outcome = _generation_error(self.model, error)
            for number, job in enumerate(batch):
                if job.done.done():
                    continue
                if isinstance(outcome, BackendError):
                    job.done.set_exception(outcome)
                else:
                    job.done.set_result(outcome[number])

    def _generate_batch(self, batch: list[_Job]) -> list[Generation]:
        import torch

        from paravt_infer.backends.sampling import PerRowLogitsProcessor, PerRowStoppingCriteria

        assert self._files is not None and self.chat is not None
        inputs, width = self._inputs(batch)
        sampler = PerRowLogitsProcessor(
            [job.sampling for job in batch],
            tokenizer=self.chat.tokenizer,
            end_ids=self.chat.end_ids,
            banned_ids=self.chat.media_token_ids,
        )
        stops = PerRowStoppingCriteria(
            [job.sampling for job in batch],
            decode=self.chat.decode,
            end_ids=self.chat.end_ids,
            prompt_width=width,
            cancelled=[job.cancelled for job in batch],
        )
        with torch.inference_mode():
            rows = self._network.generate(
                **inputs,
                # The logits processor has sampled: it leaves one token per row, which greedy search takes.
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                max_new_tokens=max(job.sampling.max_new_tokens for job in batch),
                logits_processor=[sampler],
                stopping_criteria=[stops],
                eos_token_id=None,
                pad_token_id=self.chat.end_ids[-1],
            )
        generations = []
        for number, job in enumerate(batch):
            length = stops.lengths[number] or rows.shape[1] - width
            ids = rows[number, width : width + length].tolist()
            generations.append(
                Generation(
                    ids=ids,
                    text=self.chat.decode(ids),
                    finish=stops.reasons[number] or "length",
                    prompt_tokens=job.prompt_tokens,
                    visual_tokens=job.visual_tokens,
                    logprobs=sampler.logprobs[number][:length] if job.sampling.logprobs else None,
                    weight_version=self.weight_version,
                )
            )
        return generations

    def _inputs(self, batch: list[_Job]) -> tuple[dict[str, Any], int]:
        """The batch as left-padded tensors with expanded placeholders, and the width of its prompts in tokens."""
        import torch

        assert self._files is not None and self.chat is not None
        files, image_id = self._files, self.chat.image_token_id
        frames = [frame for job in batch for frame in job.request.frames]
        inputs: dict[str, Any] = {}
        if frames:
            images = [frame.pixels for frame in frames]
            inputs = dict(files.image_processor(images=images, do_resize=False, return_tensors="pt"))
        rows = []
        for job in batch:
            sizes = map(files.visual_tokens, job.request.frames)
            rows.append([i for token in job.request.ids for i in [token] * (next(sizes) if token == image_id else 1)])
        width = max(len(row) for row in rows)
        pad = self.chat.end_ids[-1]
        inputs["input_ids"] = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
        inputs["attention_mask"] = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == image_id).to(torch.int32)
        return {name: tensor.to(self._network.device) for name, tensor in inputs.items()}, width

    async def update_weights(
        self, version: str, *, folder: Path | None = None, tensors: Mapping[str, Any] | None = None
    ) -> None:
        if tensors is None:
            if folder is None:
                raise BackendError("new weights need a folder or tensors")
            tensors = await asyncio.to_thread(lambda: load_pretrained(str(folder), MODEL, dtype="auto").state_dict())
        async with self._weights_lock.writing():
            try:
                await asyncio.to_thread(self._network.load_state_dict, tensors)
            except RuntimeError as error:
                line = " ".join(str(error).split())[:200]
                raise BackendError(f"{self.model}: the new weights do not fit ({line})") from None
            self.weight_version = version

    async def close(self) -> None:
        for job in self._waiting:
            job.cancelled.set()
        if self._runner is not None:
            await asyncio.gather(self._runner, return_exceptions=True)
        self._network = None


def _generation_error(model: str, error: Exception) -> BackendError:
    """Why a batch failed and what to do, in one line."""
    if isinstance(error, BackendError):
        return error
    line = first_line(error)
    if isinstance(error, MemoryError) or "out of memory" in line.lower() or "can't allocate" in line.lower():
        return BackendError(f"{model}: not enough memory for this prompt; use fewer or smaller frames (--frames)")
    if isinstance(error, ImportError):
        return BackendError(f"{model}: a package is missing ({line}); run `paravt doctor`")
    return BackendError(f"{model}: generation failed ({type(error).__name__}: {line})")
