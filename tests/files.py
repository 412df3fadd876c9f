"""Parquet files of tests."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def put(path: Path, rows: pa.Table | dict[str, Any], **options: Any) -> Path:
    """Write a table, or columns, with the directories above the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), path, **options)
    return path
