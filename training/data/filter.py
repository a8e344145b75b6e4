"""The filter before RL, as DAPO's: prompts whose reward cannot differ within a group are left out (paper, section 4.1
and appendix "RL Data"): open answers of more than 15 words, and prompts that a policy's rollouts never got right."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paravt_infer import rollout_files as rollouts
from paravt_infer.errors import SettingsError
from paravt_training.data.rows import BadRow, ConversationRow
from paravt_training.rewards.accuracy import GoldAnswer, accuracy

MOST_WORDS = 15
"""An open answer of more words is out of reach of a model that answers in few (paper)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutAnswer:
    """What one rollout answered."""

    answer: str | None
    """None where it gave none."""
    options: dict[str, str] = field(default_factory=dict)
    """Letter to text, of a choice."""


@dataclass(kw_only=True, slots=True)
class FilterCounts:
    """What became of the rows."""

    rows: int = 0
    kept: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """By reason: `long_answer`, `never_right`, and `bad_row` for those that cannot be read."""
    without_rollouts: int = 0
    """Kept rows about which the rollouts say nothing."""


def read_answers(file: Path) -> dict[str, list[RolloutAnswer]]:
    """The answers of a file that `paravt ask --out` wrote, by their question's id. Failed episodes answer nothing.

    Raises:
        SettingsError: no such file, or not one of rollouts.
    """
    answers: dict[str, list[RolloutAnswer]] = defaultdict(list)
    for one in rollouts.load_rollouts(file):
        if one.status in ("answered", "no_answer"):
            answers[one.question.id].append(RolloutAnswer(answer=one.answer, options=one.question.options))
    return dict(answers)


def _gold(row: ConversationRow, said: RolloutAnswer) -> GoldAnswer:
    """Raises SettingsError where the row's right answer says nothing that could be right."""
    try:
        return GoldAnswer(answer=row.answer, kind=row.kind, options=said.options)  # type: ignore[arg-type]
    except SettingsError as error:
        raise SettingsError(f"{row.file}, row {row.number}: {error}") from None


def filtered(
    rows: Iterable[ConversationRow | BadRow],
    report: FilterCounts,
    *,
    answers: Mapping[str, list[RolloutAnswer]] | None = None,
    most_words: int = MOST_WORDS,
) -> Iterator[ConversationRow | BadRow]:
    """The rows that can be learned from, and the bad ones; `report` counts as they pass.

    Args:
        answers: a policy's answers by question id: a row's `extra_info.id`, else its number in its file.
        most_words: words an open answer may have.
    """
    for row in rows:
        report.rows += 1
        if isinstance(row, BadRow):
            report.left_out["bad_row"] += 1
            yield row
            continue
        said = (answers or {}).get(str(row.info.get("id") or row.number), [])
        if row.kind == "open" and len(row.answer.split()) > most_words:
            report.left_out["long_answer"] += 1
        elif said and not any(accuracy(one.answer, _gold(row, one)) > 0 for one in said):
            report.left_out["never_right"] += 1
        else:
            report.kept += 1
            report.without_rollouts += answers is not None and not said
            yield row
