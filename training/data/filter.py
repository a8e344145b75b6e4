"""The filter before RL, as in DAPO: leaves out prompts whose reward cannot differ within a group (paper, section 4.1
and appendix "RL Data"): open answers of more than 15 words, and prompts that a policy's rollouts never got right."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paravt_infer.errors import SettingsError
from paravt_infer.rollout_files import load_rollouts
from paravt_training.data.rows import ConversationRow, InvalidRow
from paravt_training.rewards.accuracy import GoldAnswer, accuracy_reward

MAX_ANSWER_WORDS = 15
"""A longer open answer is out of reach of a model that answers in few words (paper)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutAnswer:
    """The answer of one rollout."""

    answer: str | None
    """None where it gave none."""
    options: dict[str, str] = field(default_factory=dict)
    """Letter to text, for multiple choice."""


@dataclass(kw_only=True, slots=True)
class FilterCounts:
    """Counts of the rows kept and dropped."""

    rows: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """By reason: `long_answer`, `never_right`, and `bad_row` for those that cannot be read."""
    without_rollouts: int = 0
    """Kept rows that have no rollouts."""


def load_rollout_answers(file: Path) -> dict[str, list[RolloutAnswer]]:
    """The answers in a file written by `paravt ask --out`, by question id; failed episodes are skipped.

    Raises:
        SettingsError: the file does not exist or does not contain rollouts.
    """
    answers: dict[str, list[RolloutAnswer]] = defaultdict(list)
    for rollout in load_rollouts(file):
        if rollout.status in ("answered", "no_answer"):
            answer = RolloutAnswer(answer=rollout.answer, options=rollout.question.options)
            answers[rollout.question.id].append(answer)
    return dict(answers)


def _score(row: ConversationRow, rollout: RolloutAnswer) -> float:
    """Raises SettingsError where no answer could match the row's own."""
    try:
        gold = GoldAnswer(answer=row.answer, kind=row.kind, options=rollout.options)  # type: ignore[arg-type]
    except SettingsError as error:
        raise SettingsError(f"{row.file}, row {row.number}: {error}") from None
    return accuracy_reward(rollout.answer, gold)


def filter_rows(
    rows: Iterable[ConversationRow | InvalidRow],
    counts: FilterCounts,
    *,
    answers: Mapping[str, list[RolloutAnswer]] | None = None,
    max_words: int = MAX_ANSWER_WORDS,
) -> Iterator[ConversationRow | InvalidRow]:
    """The rows that can be learned from, and the invalid ones; `counts` is updated along the way.

    Args:
        answers: a policy's answers by question id: a row's `extra_info.id`, else its number in its file.
        max_words: of an open answer.
    """
    for row in rows:
        counts.rows += 1
        if isinstance(row, InvalidRow):
            counts.dropped["bad_row"] += 1
            yield row
            continue
        rollouts = (answers or {}).get(str(row.info.get("id") or row.number), [])
        if row.kind == "open" and len(row.answer.split()) > max_words:
            counts.dropped["long_answer"] += 1
        elif rollouts and not any(_score(row, rollout) > 0 for rollout in rollouts):
            counts.dropped["never_right"] += 1
        else:
            counts.kept += 1
            counts.without_rollouts += answers is not None and not rollouts
            yield row
