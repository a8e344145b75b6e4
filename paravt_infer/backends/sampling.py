"""Drawing tokens row by row inside `transformers.generate`: each row with its own temperature, seed and stops."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from paravt_infer.backends.base import SamplingParams


class PerRowLogitsProcessor:
    """A logits processor that draws each row's next token itself and leaves only that one.

    `generate` has one set of sampling parameters for a whole batch; a batch here mixes main turns and
    sub-agents of different episodes. Log-probabilities are of the distribution after bans, regex
    and temperature, before top-p and top-k. A row draws from its own seed, whatever runs beside it.
    """

    def __init__(
        self, rows: Sequence[SamplingParams], *, tokenizer: Any, end_ids: Sequence[int], banned_ids: Sequence[int]
    ):
        self.rows = rows
        self.logprobs: list[list[float]] = [[] for _ in rows]
        self._banned = torch.tensor(list(banned_ids), dtype=torch.long)
        self._drawn = [number for number, row in enumerate(rows) if row.temperature > 0]
        self._generators = {
            number: torch.Generator().manual_seed(seed)
            for number in self._drawn
            if (seed := rows[number].seed) is not None
        }
        self._temperatures = torch.tensor([row.temperature or 1.0 for row in rows])[:, None]
        limited = any(row.top_k > 0 or row.top_p < 1 for row in rows)
        self._limits: tuple[torch.Tensor, torch.Tensor] | None = None
        if limited:
            ranks = torch.tensor([row.top_k if row.top_k > 0 else 2**31 for row in rows])
            self._limits = ranks[:, None], torch.tensor([row.top_p for row in rows], dtype=torch.float64)[:, None]
        self._tokenizer, self._end_ids = tokenizer, list(end_ids)
        self._matchers: list[Any] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """input_ids # [rows, tokens], scores # [rows, vocabulary] -> scores with one finite entry a row"""
        if not self._matchers:
            self._matchers = _matchers(self.rows, self._tokenizer, self._end_ids, vocabulary=scores.shape[-1])
            # Once, and not for every token.
            self._banned, self._temperatures = self._banned.to(scores.device), self._temperatures.to(scores.device)
        logits = scores.float().index_fill(-1, self._banned, float("-inf"))
        for number in range(len(self.rows)):
            self._constrain(number, logits[number])
        logprobs = (logits / self._temperatures).log_softmax(-1)
        tokens = logprobs.argmax(-1)
        if self._drawn:
            tokens[self._drawn] = self._draw(logprobs[self._drawn]).to(tokens.device)
        chosen = logprobs.gather(-1, tokens[:, None])[:, 0].tolist()
        for number, token in enumerate(tokens.tolist()):
            self.logprobs[number].append(chosen[number])
            matcher = self._matchers[number]
            if matcher is not None and not matcher.is_terminated():
                matcher.accept_token(token)
        return torch.full_like(scores, float("-inf")).scatter(-1, tokens[:, None], 0.0)

    def _constrain(self, number: int, logits: torch.Tensor) -> None:
        matcher = self._matchers[number]
        if matcher is None or matcher.is_terminated():
            return
        import xgrammar

        bitmask = xgrammar.allocate_token_bitmask(1, logits.shape[-1])
        matcher.fill_next_token_bitmask(bitmask)
        xgrammar.apply_token_bitmask_inplace(logits.unsqueeze(0), bitmask.to(logits.device))

    def _draw(self, logprobs: torch.Tensor) -> torch.Tensor:
        """A token for each row that is drawn, by where a number of its own falls.  # [drawn, vocabulary] to [drawn]"""
        chances = logprobs.cpu().double().exp()
        order = None
        if self._limits is not None:
            ranks, part = (limit[self._drawn] for limit in self._limits)
            chances, order = chances.sort(descending=True)
            kept = torch.arange(chances.shape[-1]) < ranks
            kept &= (chances.cumsum(-1) - chances < part) | (part >= 1)
            chances = chances * kept
        summed = chances.cumsum(-1)
        falls = [torch.rand((), generator=self._generators.get(number), dtype=torch.float64) for number in self._drawn]
        places = torch.searchsorted(summed, torch.stack(falls)[:, None] * summed[:, -1:], right=True)
        return (places if order is None else order.gather(-1, places))[:, 0]


def _matchers(rows: Sequence[SamplingParams], tokenizer: Any, end_ids: list[int], *, vocabulary: int) -> list[Any]:
    """A grammar matcher for each row that is held to a regular expression, None for the others."""
    if all(row.regex is None for row in rows):
        return [None] * len(rows)
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary, stop_token_ids=end_ids)
    compiler = xgrammar.GrammarCompiler(info)
    return [None if row.regex is None else xgrammar.GrammarMatcher(compiler.compile_regex(row.regex)) for row in rows]


class PerRowStoppingCriteria:
    """A stopping criterion with each row's own limit, stop texts and cancellation; remembers why and where."""

    def __init__(
        self,
        rows: Sequence[SamplingParams],
        *,
        decode: Callable[[Sequence[int]], str],
        end_ids: Sequence[int],
        prompt_width: int,
        cancelled: Sequence[threading.Event],
    ):
        self.rows = rows
        self.lengths = [0] * len(rows)
        self.reasons: list[Literal["stop", "length", "abort"] | None] = [None] * len(rows)
        self._decode, self._end_ids, self._width, self._cancelled = (
            decode,
            set(end_ids),
            prompt_width,
            cancelled,
        )

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """input_ids # [rows, tokens] -> which rows are done  # [rows]"""
        new = input_ids[:, self._width :]
        for number, row in enumerate(self.rows):
            if self.reasons[number] is not None:
                continue
            self.reasons[number] = self._reason(number, row, new[number])
            if self.reasons[number] is not None:
                self.lengths[number] = new.shape[1]
        done = [reason is not None for reason in self.reasons]
        return torch.tensor(done, device=input_ids.device, dtype=torch.bool)

    def _reason(self, number: int, row: SamplingParams, new: torch.Tensor) -> Literal["stop", "length", "abort"] | None:
        if self._cancelled[number].is_set():
            return "abort"
        if int(new[-1]) in self._end_ids:
            return "stop"
        if row.stop:
            # A stop text can begin inside an earlier token: look back over as many tokens as it has characters.
            tail = self._decode(new[-max(map(len, row.stop)) - 1 :].tolist())
            last = self._decode(new[-1:].tolist())
            if any(tail.rfind(stop) >= 0 and tail.rfind(stop) + len(stop) > len(tail) - len(last) for stop in row.stop):
                return "stop"
        return "length" if len(new) >= row.max_new_tokens else None
