"""Rollouts in files: JSON, JSON Lines and Parquet."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from paravt_infer.errors import SettingsError, first_line
from paravt_infer.files import atomic_path
from paravt_infer.rollout import Rollout, rollout_from_json, rollout_to_json, utf8_safe

SUFFIXES = (".json", ".jsonl", ".parquet")
_COLUMNS = ("id", "status", "answer", "error", "started_at")


def _row(rollout: Rollout) -> dict[str, Any]:
    row = {name: getattr(rollout, name) for name in _COLUMNS} | {
        "question_id": rollout.question.id,
        "video": rollout.question.video,
        "question": rollout.question.text,
        "calls": len(rollout.evidence),
        "turns": len(rollout.turns),
        "prompt_tokens": rollout.usage.prompt_tokens,
        "output_tokens": rollout.usage.output_tokens,
        "seconds": rollout.usage.seconds,
        # The whole record as a JSON string, so that column types lose nothing, as in the paper's own data.
        "rollout": rollout_to_json(rollout),
    }
    return {name: utf8_safe(value) for name, value in row.items()}


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [(name, pa.string()) for name in (*_COLUMNS, "question_id", "video", "question")]
        + [(name, pa.int64()) for name in ("calls", "turns", "prompt_tokens", "output_tokens")]
        + [("seconds", pa.float64()), ("rollout", pa.string())]
    )


def save_rollouts(rollouts: Rollout | Iterable[Rollout], path: str | Path) -> None:
    """Write rollouts atomically to ``.parquet``, ``.jsonl`` or, for a single one, ``.json``.

    Raises:
        SettingsError: another suffix, not exactly one rollout for ``.json``, or the file cannot be written.
    """
    path = Path(path)
    many = [rollouts] if isinstance(rollouts, Rollout) else list(rollouts)
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"{path}: rollouts are saved as .json, .jsonl or .parquet; change the suffix")
    if path.suffix == ".json" and len(many) != 1:
        raise SettingsError(f"{path}: .json holds one rollout; use .jsonl or .parquet for {len(many)}")
    with atomic_path(path) as scratch:
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pa.Table.from_pylist([_row(rollout) for rollout in many], schema=_schema())
            pq.write_table(table, scratch, compression="zstd")
        elif path.suffix == ".json":
            scratch.write_text(rollout_to_json(many[0], indent=1) + "\n", encoding="utf-8")
        else:
            scratch.write_text("".join(rollout_to_json(rollout) + "\n" for rollout in many), encoding="utf-8")


def load_rollouts(path: str | Path) -> Iterator[Rollout]:
    """The rollouts of a file that `save_rollouts` wrote.

    Raises:
        SettingsError: no such file, or not a file of rollouts; names the line or row.
    """
    path = Path(path)
    if not path.is_file():
        raise SettingsError(f"{path}: no such file; check the path")
    if path.suffix == ".parquet":
        for number, text in enumerate(_parquet_texts(path), 1):
            yield rollout_from_json(text, where=f"{path}, row {number}")
        return
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            if path.suffix != ".jsonl":
                yield rollout_from_json(file.read(), where=str(path))
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield rollout_from_json(line, where=f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot read it as UTF-8 text ({first_line(error)})") from None


def _parquet_texts(path: Path) -> Iterator[str]:
    """The column of whole records, as JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            if "rollout" not in file.schema_arrow.names:
                raise SettingsError(f"{path}: not a Parquet file of rollouts (it has no column rollout)")
            for batch in file.iter_batches(batch_size=64, columns=["rollout"]):
                yield from (str(text) for text in batch.column("rollout").to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise SettingsError(f"{path}: not a Parquet file of rollouts ({first_line(error)})") from None
