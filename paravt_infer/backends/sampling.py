"""Per-row sampling for `transformers.generate`: each row has its own temperature, seed, constraints and stops."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from paravt_infer.backends.base import SamplingParams


class PerRowLogitsProcessor:
    """A logits processor that samples each row's next token and masks all others.

    `generate` has one set of sampling parameters per batch, but a batch here mixes main turns and sub-agents of
    different episodes. Log-probabilities are those after bans, regex and temperature, but before top-p and top-k. Each
    row samples from its own seed, so the rest of the batch has no influence.
    """

    def __init__(
        self, rows: Sequence[SamplingParams], *, tokenizer: Any, end_ids: Sequence[int], banned_ids: Sequence[int]
    ):
        self.rows = rows
        self.logprobs: list[list[float]] = [[] for _ in rows]
        self._banned = torch.tensor(list(banned_ids), dtype=torch.long)
        self._sampled = [index for index, row in enumerate(rows) if row.temperature > 0]
        self._generators = {
            index: torch.Generator().manual_seed(seed)
            for index in self._sampled
            if (seed := rows[index].seed) is not None
        }
        self._temperatures = torch.tensor([row.temperature or 1.0 for row in rows])[:, None]
        self._limits: tuple[torch.Tensor, torch.Tensor] | None = None
        if any(row.top_k > 0 or row.top_p < 1 for row in rows):
            top_k = torch.tensor([row.top_k if row.top_k > 0 else 2**31 for row in rows])
            self._limits = top_k[:, None], torch.tensor([row.top_p for row in rows], dtype=torch.float64)[:, None]
        self._tokenizer, self._end_ids = tokenizer, list(end_ids)
        self._matchers: list[Any] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """input_ids # [rows, tokens], scores # [rows, vocabulary] -> scores with one finite entry per row"""
        if not self._matchers:
            self._matchers = _matchers(self.rows, self._tokenizer, self._end_ids, vocabulary=scores.shape[-1])
            # On the first call only.
            self._banned, self._temperatures = self._banned.to(scores.device), self._temperatures.to(scores.device)
        logits = scores.float().index_fill(-1, self._banned, float("-inf"))
        for index in range(len(self.rows)):
            self._constrain(index, logits[index])
        logprobs = (logits / self._temperatures).log_softmax(-1)
        tokens = logprobs.argmax(-1)
        if self._sampled:
            tokens[self._sampled] = self._sample(logprobs[self._sampled]).to(tokens.device)
        chosen = logprobs.gather(-1, tokens[:, None])[:, 0].tolist()
        for index, token in enumerate(tokens.tolist()):
            self.logprobs[index].append(chosen[index])
            matcher = self._matchers[index]
            if matcher is not None and not matcher.is_terminated():
                matcher.accept_token(token)
        return torch.full_like(scores, float("-inf")).scatter(-1, tokens[:, None], 0.0)

    def _constrain(self, index: int, logits: torch.Tensor) -> None:
        """Mask, in place, the tokens that the row's regular expression does not allow.  # [vocabulary]"""
        matcher = self._matchers[index]
        if matcher is None or matcher.is_terminated():
            return
        import xgrammar

        bitmask = xgrammar.allocate_token_bitmask(1, logits.shape[-1])
        matcher.fill_next_token_bitmask(bitmask)
        xgrammar.apply_token_bitmask_inplace(logits.unsqueeze(0), bitmask.to(logits.device))

    def _sample(self, logprobs: torch.Tensor) -> torch.Tensor:
        """A token for each sampled row, by inverse transform sampling.  # [sampled, vocabulary] -> [sampled]"""
        probabilities = logprobs.cpu().double().exp()
        order = None
        if self._limits is not None:
            top_k, top_p = (limit[self._sampled] for limit in self._limits)
            probabilities, order = probabilities.sort(descending=True)
            kept = torch.arange(probabilities.shape[-1]) < top_k
            kept &= (probabilities.cumsum(-1) - probabilities < top_p) | (top_p >= 1)
            probabilities = probabilities * kept
        cumulative = probabilities.cumsum(-1)
        generators = [self._generators.get(index) for index in self._sampled]
        uniform = torch.stack([torch.rand((), generator=generator, dtype=torch.float64) for generator in generators])
        positions = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)
        return (positions if order is None else order.gather(-1, positions))[:, 0]


def _matchers(rows: Sequence[SamplingParams], tokenizer: Any, end_ids: list[int], *, vocabulary: int) -> list[Any]:
    """A grammar matcher for each row with a regular expression, None for the others."""
    if all(row.regex is None for row in rows):
        return [None] * len(rows)
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary, stop_token_ids=end_ids)
    compiler = xgrammar.GrammarCompiler(info)
    return [None if row.regex is None else xgrammar.GrammarMatcher(compiler.compile_regex(row.regex)) for row in rows]


class PerRowStoppingCriteria:
    """A stopping criterion with a token limit, stop texts and cancellation per row; records where and why it stops."""

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
        self._decode, self._end_ids, self._width, self._cancelled = decode, set(end_ids), prompt_width, cancelled

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """input_ids # [rows, tokens] -> whether each row is done  # [rows]"""
        new = input_ids[:, self._width :]
        for index, row in enumerate(self.rows):
            if self.reasons[index] is not None:
                continue
            self.reasons[index] = self._reason(index, row, new[index])
            if self.reasons[index] is not None:
                self.lengths[index] = new.shape[1]
        done = [reason is not None for reason in self.reasons]
        return torch.tensor(done, device=input_ids.device, dtype=torch.bool)

    def _reason(self, index: int, row: SamplingParams, new: torch.Tensor) -> Literal["stop", "length", "abort"] | None:
        if self._cancelled[index].is_set():
            return "abort"
        if int(new[-1]) in self._end_ids:
            return "stop"
        if row.stop:
            # A stop text can start inside an earlier token: decode as many tokens as it has characters.
            tail = self._decode(new[-max(map(len, row.stop)) - 1 :].tolist())
            last = self._decode(new[-1:].tolist())
            if any(tail.rfind(stop) >= 0 and tail.rfind(stop) + len(stop) > len(tail) - len(last) for stop in row.stop):
                return "stop"
        return "length" if len(new) >= row.max_new_tokens else None
