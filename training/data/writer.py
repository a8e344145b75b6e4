"""Rows to a Parquet file in the paper's layout, one after the other; whole or not at all."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paravt_infer.errors import SettingsError
from paravt_training.data.rows import ROWS_AT_ONCE, ConversationRow

SCHEMA = pa.schema([("messages", pa.string()), ("videos", pa.list_(pa.string())), ("extra_info", pa.string())])
"""What is written: one schema, whatever was read."""


class RowWriter:
    """Writes rows to a Parquet file, `ROWS_AT_ONCE` a row group; whole or, on an exception, not at all.

    Raises:
        SettingsError: it cannot be written.
    """

    def __init__(self, file: Path):
        self.file = file
        self.rows = 0
        self._scratch = file.with_name(f".{file.name}.part")
        self._batch: list[dict[str, Any]] = []

    def __enter__(self) -> "RowWriter":
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._scratch, SCHEMA, compression="zstd")
        except OSError as error:
            raise self._unwritten(error) from None
        return self

    def write(self, row: ConversationRow) -> None:
        """Add a row."""
        # JSON's own escapes keep what UTF-8 cannot hold, such as half a pair.
        texts = {"messages": json.dumps(row.messages), "extra_info": json.dumps(row.info, default=str)}
        self._batch.append({**texts, "videos": row.videos})
        self.rows += 1
        if len(self._batch) == ROWS_AT_ONCE:
            self._flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self._flush()
            self._writer.close()
            if kind is None:
                self._scratch.replace(self.file)
        except OSError as failed:
            raise self._unwritten(failed) from None
        finally:
            self._scratch.unlink(missing_ok=True)

    def _flush(self) -> None:
        try:
            if self._batch:
                self._writer.write_table(pa.Table.from_pylist(self._batch, schema=SCHEMA))
        except OSError as error:
            raise self._unwritten(error) from None
        self._batch = []

    def _unwritten(self, error: OSError) -> SettingsError:
        return SettingsError(f"{self.file}: cannot be written ({error.strerror or error}); name another place")
