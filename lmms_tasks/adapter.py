"""The engine as a model of lmms-eval: whole episodes inside `generate_until`.

``lmms-eval --model paravt --model_args model=...,dispatch=parallel,frames=64,concurrency=64,out=DIR --tasks ...``
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.model_utils.gen_metrics import log_metrics
from lmms_eval.models.model_utils.usage_metrics import log_usage
from lmms_eval.protocol import ChatMessages
from rich.console import Console

from lmms_tasks.benchmarks import BENCHMARKS, Roots
from lmms_tasks.items import EvalResult, Item, save_rows
from lmms_tasks.metrics import response_text
from lmms_tasks.scoring.scorers import get_scorer
from lmms_tasks.sweep import Arm, EngineSpec, sweep, write_run_info
from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_infer.settings import Settings

OUT = "paravt-results"


class ParavtModel(lmms):  # type: ignore[misc]
    """Answers each request with an episode, all at once up to `concurrency`.

    Args:
        model: folder or hub id; the bundled checkpoint where neither it nor a server is named.
        server: URL of a running server or router; several parted by `;`.
        concurrency: episodes under way at once.
        out: folder of the journal and the results. An episode that was finished there is not run again, unless
            something that decides its answer has changed.
        system_prompt: a file whose text replaces the protocol's system prompt.
        videos: folder of a benchmark's videos, as `task:folder`; several parted by `;`.
        values: any setting of `paravt_infer.settings.Settings`, such as `dispatch`, `evidence`, `frames`,
            `protocol`.

    Tokens, temperature and stops are settings here and part of what an episode is found again by: a task's
    `generation_kwargs`, made for models that answer in one go, are not used.

    After a run `rows` holds the questions of this project's tasks with their rollouts, and `failed` counts the
    episodes that broke, of whatever task.

    Raises:
        SettingsError: a value makes no sense; names it.
    """

    is_simple = False

    def __init__(
        self,
        model: str | None = None,
        server: str = "",
        backend: str | None = None,
        device: str | None = None,
        reader: str = "pyav",
        concurrency: int = 8,
        out: str = OUT,
        system_prompt: str = "",
        videos: str = "",
        batch_size: Any = None,
        max_batch_size: Any = None,
        **values: Any,
    ):
        super().__init__()
        if system_prompt:
            try:
                values["system_prompt"] = Path(system_prompt).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(f"{system_prompt}: the system prompt cannot be read ({error})") from None
        servers = tuple(filter(None, str(server).split(";")))
        self.settings = Settings.make(**values)
        self.reached = EngineSpec(model=model, servers=servers, backend=backend, device=device, reader=reader)
        if not str(concurrency).isdecimal() or int(concurrency) < 1:
            raise SettingsError(f"concurrency must be a whole number from 1 on, not {concurrency}")
        self.concurrency, self.out = int(concurrency), Path(out)
        self.roots = Roots.make(filter(None, videos.split(";")))
        self.rows: list[EvalResult] = []
        self.failed = 0

    def generate_until(self, requests: list[Instance]) -> list[GenerationResult]:
        """One result a request: the answer's text, and the tokens of its whole episode."""
        asked = [self._asked(request) for request in requests]
        questions = [one.question if isinstance(one, Item) else one for one in asked]
        running = _Running(one for one in asked if isinstance(one, Item))
        began = time.monotonic()
        tasks = list(dict.fromkeys(str(request.task_name) for request in requests))
        title = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
        arm = Arm(questions=questions, settings=self.settings, out=self.out, title=title)
        (rollouts,) = sweep(self.reached, [arm], concurrency=self.concurrency, describe=running.describe)
        self._report(requests, rollouts, time.monotonic() - began)
        self._keep(
            [EvalResult(item=one, rollout=r) for one, r in zip(asked, rollouts, strict=True) if isinstance(one, Item)]
        )
        return [_result(rollout, isinstance(one, Item)) for one, rollout in zip(asked, rollouts, strict=True)]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Refused: an episode generates, it does not weigh given answers."""
        raise SettingsError(
            "the model paravt answers in episodes and gives no log-likelihoods of given answers; "
            "name tasks of the output type generate_until"
        )

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        """Refused: an episode answers one question."""
        raise SettingsError(
            "the model paravt answers one question an episode and has no further rounds; "
            "name tasks of the output type generate_until"
        )

    def _asked(self, request: Instance) -> Item | Question:
        """What a request asks: an item of this project's tasks, or the plain text and video of any other's."""
        _, messages, _, doc_id, task, split = request.args
        doc = self.task_dict[task][split][doc_id]
        if task in BENCHMARKS:
            return BENCHMARKS[task].item(doc, self.roots)
        chat = ChatMessages(messages=messages(doc))
        images, videos, audios = chat.extract_media()
        if images or audios or len(videos) != 1:
            raise SettingsError(
                f"task {task}, document {doc_id}: has {len(videos)} videos, {len(images)} images and {len(audios)} "
                "sounds; the model paravt takes questions about one video"
            )
        texts = [part.text for message in chat.messages for part in message.content if part.type == "text"]
        return Question.make(video=str(videos[0]), text="\n".join(texts).strip(), id=f"{task}/{doc_id}")

    def _report(self, requests: Sequence[Instance], rollouts: Sequence[Rollout], seconds: float) -> None:
        """Tokens, calls and seconds, to lmms-eval's usage and throughput; failures, to the user."""
        for request, rollout in zip(requests, rollouts, strict=True):
            usage = rollout.usage
            log_usage(rollout.backend.model, request.task_name, usage.prompt_tokens, usage.output_tokens)
        tokens = sum(rollout.usage.output_tokens for rollout in rollouts)
        count = max(1, len(rollouts))
        broken = [rollout for rollout in rollouts if rollout.status == "failed"]
        log_metrics(
            total_elapsed_time=seconds,
            total_gen_tokens=tokens,
            avg_speed=tokens / seconds if seconds else 0.0,
            additional_metrics={
                "episodes": len(rollouts),
                "failed": len(broken),
                "calls_an_episode": sum(rollout.usage.calls for rollout in rollouts) / count,
                "seconds_an_episode": sum(rollout.usage.seconds for rollout in rollouts) / count,
            },
        )
        self.failed += len(broken)
        console = Console(stderr=True)
        for rollout in broken[:5]:
            console.print(f"failed: {rollout.question.id}: {rollout.error}", style="red", markup=False, soft_wrap=True)
        if len(broken) > 5:
            console.print(f"... and {len(broken) - 5} more; {self.out} says why", style="red", markup=False)

    def _keep(self, rows: list[EvalResult]) -> None:
        """Write each task's rows, and how they were made."""
        self.rows += rows
        for task in dict.fromkeys(row.item.task for row in rows):
            save_rows((row for row in rows if row.item.task == task), self.out / f"{task}.parquet")
        if rows:
            first = rows[0].rollout
            facts: dict[str, Any] = {
                "settings": first.settings.model_dump(),
                "versions": first.versions,
                "reader": first.reader,
            }
            protocol = first.protocol.model_dump() if first.protocol else None
            facts |= {"backend": first.backend.model_dump(), "protocol": protocol}
            write_run_info(self.out, facts)


class _Running:
    """The score so far, for the progress line."""

    def __init__(self, items: Iterable[Item]):
        self.items = {item.question.model_dump_json(): item for item in items}
        self.scores: list[float] = []
        self.scorer = get_scorer("paravt")

    def describe(self, rollout: Rollout) -> str:
        item = self.items.get(rollout.question.model_dump_json())
        if item is not None:
            row = EvalResult(item=item, rollout=rollout)
            if not row.failed:
                self.scores.append(self.scorer.score(row))
        return f"score {100 * sum(self.scores) / len(self.scores):.1f}" if self.scores else ""


def _result(rollout: Rollout, ours: bool) -> GenerationResult:
    """What lmms-eval scores. A failure is marked for our own tasks; another's scorer gets an empty text."""
    usage = rollout.usage
    counts = TokenCounts(input_tokens=usage.prompt_tokens, output_tokens=usage.output_tokens)
    return GenerationResult(response_text(rollout) if ours else rollout.answer_text or "", counts)
