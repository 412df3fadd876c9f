"""Files with flipped, overwritten or cut bytes of pages and headers: equal to Arrow's values, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing.cases import Tally, seeded
from streameval.errors import CorruptFileError
from streameval.scan import plan, read
from streameval.scan.parquet import columns

if TYPE_CHECKING:
    import random
    from pathlib import Path

_DTYPES = ["i1", "i4", "i8", "u2", "u8", "f4", "f8", "O"]  # the last one for texts
_CODECS = ["none", "snappy", "zstd", "gzip", "lz4", "brotli"]
_STRICTER = ("Couldn't deserialize thrift",)  # Arrow refuses a header without a field that does not matter here


def pages_case(seed: int, folder: Path, tally: Tally) -> None:
    """One column by some writer's settings, with damage in up to three places, read as values and as codes."""
    rng = seeded(seed)
    draws = np.random.default_rng(seed)
    dtype = np.dtype(rng.choice(_DTYPES))
    numbers = np.frombuffer(draws.bytes(8 * rng.choice([1, 2, 3, 9, 300])), np.uint64 if dtype.hasobject else dtype)
    pool = np.array([b"%d" % number for number in numbers], dtype) if dtype.hasobject else numbers
    rows = rng.choice([1, 8, 100, 3000, 40_000])
    values = np.where(draws.random(rows) < rng.choice([0, 0.9]), pool[0], draws.choice(pool, rows))
    kind = pa.binary() if dtype.hasobject else None
    column = pa.array(values, kind, mask=draws.random(rows) < rng.choice([0, 0, 0.2]))
    column = column.dictionary_encode() if dtype.hasobject else column
    path, options = folder / "pages.parquet", _options(rng)
    pq.write_table(pa.table({"number": column}), path, **options)
    raw, original = path.read_bytes(), _bits(column)
    path.write_bytes(_damaged(raw, rng))
    refusal = ""
    try:
        expected = [*map(_bits, pq.read_table(path, page_checksum_verification=True)["number"].chunks)]
    except (OSError, pa.ArrowInvalid) as error:
        expected, refusal = None, str(error)
    whole = {"LEAST_ROWS": 0, "CODED": float("inf"), "NARROW": float("inf")}
    for by_code in ((), ("number",)):
        try:
            with patch.multiple(columns, **whole):
                scan = plan(path, ["number"])
                batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema, by_code=by_code)]
        except CorruptFileError as error:
            tally.refused(error)
            if path.name not in str(error) or ("number" not in str(error) and options["use_dictionary"]):
                tally.wrong.append(f"refused without a name: {error}")
            continue
        arrays = [batch.column(0) for batch in batches]
        bits = b"".join(map(_bits, arrays))
        if options["write_page_checksum"] and bits != original:
            tally.wrong.append(f"{options}: other values than were written, in spite of checksums")
        elif expected is not None and bits != b"".join(expected):
            tally.wrong.append(f"{options}: other values than Arrow's")
        elif expected is None and bits != original and not refusal.startswith(_STRICTER):
            tally.wrong.append(f"{options}: other values than were written, where Arrow refuses: {refusal}")


def _options(rng: random.Random) -> dict[str, object]:
    """Settings of Arrow's writer."""
    return {
        "compression": rng.choice(_CODECS),
        "use_dictionary": rng.random() < 0.9,
        "dictionary_pagesize_limit": rng.choice([16, 500, 1 << 20]),
        "data_page_size": rng.choice([64, 1000, 1 << 20]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "write_page_checksum": rng.random() < 0.3,
        "row_group_size": rng.choice([50, 1000, 50_000]),
    }


def _damaged(raw: bytes, rng: random.Random) -> bytes:
    """The file with other bytes before its footer; a cut is filled up at the end of the pages."""
    end = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    pages = bytearray(raw[4:end])
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(min(len(pages), rng.choice([40, 1 << 30])))  # often in the first header or dictionary
        kind = rng.random()
        if kind < 0.1:
            size = rng.randint(1, 9)
            pages[place:] = (pages[place + size :] + bytes(size))[: len(pages) - place]
        else:
            pages[place] = pages[place] ^ (1 << rng.randrange(8)) if kind < 0.6 else rng.randrange(256)
    return raw[:4] + bytes(pages).ljust(end - 4, b"\0")[: end - 4] + raw[end:]


def _bits(array: pa.Array) -> bytes:
    """Which values are null, and the bits of the others; a row group may be cut anywhere."""
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    kind = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(array.type, array.type)
    return repr(array.view(kind).to_pylist())[1:-1].replace(" ", "").encode() + b"," * bool(len(array))
