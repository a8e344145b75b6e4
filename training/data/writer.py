"""Rows to a Parquet file in the paper's layout, one at a time, atomically."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paravt_infer.files import atomic_path
from paravt_training.data.rows import ROW_GROUP, ConversationRow

SCHEMA = pa.schema([("messages", pa.string()), ("videos", pa.list_(pa.string())), ("extra_info", pa.string())])
"""The schema of every file written, whatever was read."""


class RowWriter:
    """Writes rows in row groups of `ROW_GROUP`; `open_row_writer` makes one."""

    def __init__(self, parquet: pq.ParquetWriter):
        self.rows = 0
        self._parquet = parquet
        self._batch: list[dict[str, Any]] = []

    def write(self, row: ConversationRow) -> None:
        # JSON escapes keep what UTF-8 cannot encode, such as half of a surrogate pair.
        texts = {"messages": json.dumps(row.messages), "extra_info": json.dumps(row.info, default=str)}
        self._batch.append({**texts, "videos": row.videos})
        self.rows += 1
        if len(self._batch) == ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if self._batch:
            self._parquet.write_table(pa.Table.from_pylist(self._batch, schema=SCHEMA))
        self._batch = []


@contextmanager
def open_row_writer(file: Path) -> Iterator[RowWriter]:
    """A writer to `file`, which appears when the block ends without an exception. Raises SettingsError."""
    with atomic_path(file) as scratch, pq.ParquetWriter(scratch, SCHEMA, compression="zstd") as parquet:
        writer = RowWriter(parquet)
        yield writer
        writer.flush()
