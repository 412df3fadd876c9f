"""Tables of the frozen cases, drawn from a counter by arithmetic that every version of NumPy does alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_TEXTS = {"int": pa.int64(), "string": pa.string(), "dictionary": pa.dictionary(pa.int32(), pa.string())}


def make_table(seed: int, rows: int, shape: str, score_type: str, id_type: str, missing: float) -> pa.Table:
    """Scores, ids, a weight and slicing columns.

    `shape` is how values repeat: ``lone`` (hardly), ``hot`` (one value has half of the rows), ``heavy`` (Zipf tails)
    or ``few`` (a dozen values). `missing` is the share of nulls among ids, lengths and labels, and of NaN scores.
    """
    columns = _Columns(seed, rows)
    label = columns.uniform() < 0.25
    score = _shaped(columns, shape, 0.7 * columns.uniform() * columns.uniform() + 0.3 * label * columns.uniform())
    heavy = (1 / (1 - columns.uniform())).astype(np.int64) % 100_003
    ids = {
        "lone": columns.words() >> np.uint64(2),
        "hot": np.where(columns.uniform() < 0.5, 7, heavy),
        "heavy": heavy,
        "few": columns.below(12),
    }[shape].astype(np.int64)
    kind = np.where(columns.uniform() < 0.8, ids % 257, columns.below(40))
    other = np.round(0.5 * score + 0.5 * columns.uniform(), 2)
    absent = [columns.uniform() < missing for _ in range(5)]
    texts = _TEXTS[id_type]
    as_ids = ids if id_type == "int" else ids.astype(str)
    return pa.table(
        {
            "label": pa.array(label.astype(np.int8), mask=absent[0]),
            "score": pa.array(_typed(np.where(absent[1], np.nan, score), score_type), from_pandas=False),
            "other": pa.array(other.astype(np.float32)),
            "weight": columns.below(1000) / 64 + 0.125,
            "id": pa.array(as_ids, mask=absent[2]).cast(texts),
            "id2": pa.array((ids * 3) % 1009, mask=absent[3]),
            "kind": pa.array(kind.astype(np.int64)),
            "unit": pa.array(columns.below(max(2, rows // 6))),
            "country": pa.array([f"c{i}" for i in (1 / (1 - columns.uniform())).astype(int) % 7]).dictionary_encode(),
            "length": pa.array(columns.below(7) - 2, mask=absent[4]),
            "sent": pa.array(columns.below(10**14), pa.timestamp("us")),
        }
    )


def write_nights(table: pa.Table, folder: Path, nights: int) -> Path:
    """Write the rows in their order as `nights` directories, each with one file of three row groups."""
    ends = [len(table) * i // nights for i in range(nights + 1)]
    for i in range(nights):
        place = folder / f"night=2026-01-{i + 1:02}"
        place.mkdir(parents=True)
        part = table.slice(ends[i], ends[i + 1] - ends[i])
        pq.write_table(part, place / "part-0.parquet", row_group_size=max(1, -(-len(part) // 3)))
    return folder


class _Columns:
    """Columns of SplitMix64 (Steele, Lea and Flood 2014), each from a counter of its own."""

    def __init__(self, seed: int, rows: int) -> None:
        self._next, self._rows = seed << 40, rows

    def words(self) -> Any:
        """Words of 64 random bits."""
        z = np.arange(self._next, self._next + self._rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._next += 1 << 32
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    def uniform(self) -> Any:
        """Multiples of 2⁻⁵³ in [0, 1)."""
        return (self.words() >> np.uint64(11)) * 2.0**-53

    def below(self, bound: int) -> Any:
        """Whole numbers from 0 to `bound` − 1."""
        return (self.uniform() * bound).astype(np.int64)


def _shaped(columns: _Columns, shape: str, score: Any) -> Any:
    """Scores that repeat as the shape says."""
    if shape == "hot":
        return np.where(columns.uniform() < 0.5, 0.5, score)
    return np.round(score, {"lone": 15, "heavy": 3, "few": 1}[shape])


def _typed(score: Any, score_type: str) -> Any:
    if score_type == "int32":
        return (np.nan_to_num(score) * 1000).astype(np.int32)
    return score.astype(score_type)
