"""Drawing tokens row by row inside `transformers.generate`: each row with its own temperature, seed and stops."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from paravt_infer.backends.base import Sampling


class RowSampler:
    """A logits processor that draws each row's next token itself and leaves only that one.

    `generate` has one set of sampling parameters for a whole batch; a batch here mixes main turns and
    sub-agents of different episodes. Log-probabilities are of the distribution after bans, regex
    and temperature, before top-p and top-k.
    """

    def __init__(self, rows: Sequence[Sampling], *, tokenizer: Any, end_ids: Sequence[int], banned_ids: Sequence[int]):
        self.rows = rows
        self.logprobs: list[list[float]] = [[] for _ in rows]
        self._banned = list(banned_ids)
        self._generators: list[torch.Generator | None] = []
        for row in rows:
            generator = None
            if row.seed is not None:
                generator = torch.Generator().manual_seed(row.seed)
            self._generators.append(generator)
        self._tokenizer, self._end_ids = tokenizer, list(end_ids)
        self._matchers: list[Any] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """input_ids # [rows, tokens], scores # [rows, vocabulary] -> scores with one finite entry a row"""
        if not self._matchers:
            self._matchers = _matchers(self.rows, self._tokenizer, self._end_ids, vocabulary=scores.shape[-1])
        chosen = torch.full_like(scores, float("-inf"))
        for number, row in enumerate(self.rows):
            logits = scores[number].float()
            logits[self._banned] = float("-inf")
            self._constrain(number, logits)
            if row.temperature > 0:
                logits = logits / row.temperature
            logprobs = torch.log_softmax(logits, dim=-1)
            token = self._draw(row, logprobs, self._generators[number])
            matcher = self._matchers[number]
            if matcher is not None and not matcher.is_terminated():
                matcher.accept_token(token)
            self.logprobs[number].append(float(logprobs[token]))
            chosen[number, token] = 0.0
        return chosen

    def _constrain(self, number: int, logits: torch.Tensor) -> None:
        matcher = self._matchers[number]
        if matcher is None or matcher.is_terminated():
            return
        import xgrammar

        bitmask = xgrammar.allocate_token_bitmask(1, logits.shape[-1])
        matcher.fill_next_token_bitmask(bitmask)
        xgrammar.apply_token_bitmask_inplace(logits.unsqueeze(0), bitmask.to(logits.device))

    @staticmethod
    def _draw(row: Sampling, logprobs: torch.Tensor, generator: torch.Generator | None) -> int:
        if row.temperature == 0:
            return int(logprobs.argmax())
        ordered, order = logprobs.exp().cpu().sort(descending=True)
        kept = torch.ones_like(ordered, dtype=torch.bool)
        if row.top_k > 0:
            kept[row.top_k :] = False
        if row.top_p < 1:
            kept &= ordered.cumsum(0) - ordered < row.top_p
        return int(order[torch.multinomial(ordered * kept, 1, generator=generator)])


def _matchers(rows: Sequence[Sampling], tokenizer: Any, end_ids: list[int], *, vocabulary: int) -> list[Any]:
    """A grammar matcher for each row that is held to a regular expression, None for the others."""
    if all(row.regex is None for row in rows):
        return [None] * len(rows)
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary, stop_token_ids=end_ids)
    compiler = xgrammar.GrammarCompiler(info)
    return [None if row.regex is None else xgrammar.GrammarMatcher(compiler.compile_regex(row.regex)) for row in rows]


class RowStops:
    """A stopping criterion with each row's own limit, stop texts and cancellation; remembers why and where."""

    def __init__(
        self,
        rows: Sequence[Sampling],
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

    def _reason(self, number: int, row: Sampling, new: torch.Tensor) -> Literal["stop", "length", "abort"] | None:
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
