"""Columns of numbers that are decoded from their pages: equal to Arrow's, or refused by name."""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval import evaluate
from streameval.errors import CorruptFileError
from streameval.kernels import pages as kernels
from streameval.scan import plan, read
from streameval.scan.parquet import columns as decoded

KINDS = {
    pa.from_numpy_dtype(name): np.dtype(name)
    for name in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
}
TEXTS = [pa.string(), pa.binary(), pa.binary(14), pa.large_string(), pa.dictionary(pa.int32(), pa.binary())]
CODECS = ["none", "snappy", "zstd", "gzip", "lz4", "brotli"]


@pytest.fixture(autouse=True)
def _every_size() -> Iterator[None]:
    """Pages of small row groups are decoded as well, a few bytes at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoded, "LEAST_ROWS", 0)
        patch.setattr(decoded, "CODED", float("inf"))
        patch.setattr(decoded, "NARROW", float("inf"))
        yield


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Columns of some kinds; few or many distinct bit patterns, nulls here and there or in long runs."""
    rows, rng = draw(st.sampled_from([1, 7, 8, 100, 1200])), np.random.default_rng(draw(st.integers(0, 99)))
    columns: dict[str, pa.Array] = {}
    for kind in draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3, unique=True)):
        dtype = KINDS[kind]
        pool = np.frombuffer(rng.bytes(dtype.itemsize * draw(st.sampled_from([1, 2, 3, 9, 300, 5000]))), dtype)
        values = np.where(rng.random(rows) < draw(st.sampled_from([0, 0.9])), pool[0], rng.choice(pool, rows))
        columns[str(kind)] = pa.array(values, kind, mask=draw(masks(rows)))
    for kind in draw(st.lists(st.sampled_from(TEXTS), max_size=2, unique=True)):
        pool = [b"", *(b"text%d" % rng.integers(0, 1 << 40) for _ in range(draw(st.sampled_from([1, 9, 300]))))]
        if pa.types.is_fixed_size_binary(kind):
            pool = [text.ljust(14, b"*")[:14] for text in pool]
        values = pa.array(rng.choice(np.array(pool, object), rows), pa.binary(), mask=draw(masks(rows)))
        columns[f"texts {kind}"] = values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)
    return pa.table(columns)


@st.composite
def masks(draw: st.DrawFn, rows: int) -> np.ndarray:
    """Which values are null."""
    cuts = draw(st.lists(st.integers(0, rows), max_size=4))
    rng = np.random.default_rng(len(cuts))
    return np.isin(np.arange(rows), cuts) | (np.searchsorted(sorted(cuts), np.arange(rows)) % 2 == 1) & (
        rng.random(rows) < draw(st.sampled_from([0, 0.5, 1]))
    )


OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(CODECS),
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([16, 500, 1 << 20]),
        "data_page_size": st.sampled_from([64, 1000, 1 << 20]),
        "write_batch_size": st.sampled_from([1, 10, 1024]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "version": st.sampled_from(["1.0", "2.6"]),
        "write_page_checksum": st.booleans(),
        "row_group_size": st.sampled_from([50, 1000, 5000]),
    }
)


def bits(array: pa.Array) -> Any:
    """Values so that equal bits are equal, and nulls are None; damaged texts need not be UTF-8."""
    if isinstance(array, pa.DictionaryArray):
        return [
            None if code is None else values[code]
            for values in [bits(array.dictionary)]
            for code in array.indices.to_pylist()
        ]
    kinds = {pa.float32(): pa.int32(), pa.float64(): pa.int64(), pa.string(): pa.binary()}
    kind = (kinds | {pa.large_string(): pa.large_binary()}).get(array.type)
    return (array.view(kind) if kind else array).to_pylist()


def scanned(path: Path, names: list[str], batch_rows: int) -> dict[str, list[Any]]:
    """What a scan has of each column."""
    scan = plan(path, names)
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema, batch_rows)]
    return {name: [value for batch in batches for value in bits(batch.column(name))] for name in names}


def expected(path: Path, names: list[str]) -> dict[str, list[Any]]:
    """What Arrow reads."""
    table = pq.read_table(path, columns=names, page_checksum_verification=True)
    return {name: [value for chunk in table[name].chunks for value in bits(chunk)] for name in names}


def decoded_names(path: Path, names: list[str]) -> set[str]:
    """The columns whose pages are decoded here, as values or as codes."""
    footer = pq.read_metadata(path)
    schema, groups = footer.schema.to_arrow_schema(), range(footer.num_row_groups)
    texts = [name for name in names if "text" in name]
    with pa.OSFile(str(path)) as handle:
        return {*decoded.coded_columns(handle, footer, schema, groups, names, texts=texts, coded=names)}


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_flat_encoding_is_decoded_here(tmp_path: Path, page: str, codec: str) -> None:
    """Dictionaries of every type and booleans, whatever the page and the codec; Arrow has what is not known here."""
    path, rows = tmp_path / "a.parquet", np.arange(1000)
    texts = pa.array([b"%014d" % i for i in rows % 9])
    columns: dict[str, Any] = {str(kind): pa.array((rows % 2).astype(dtype)) for kind, dtype in KINDS.items()}
    columns |= {f"text {kind}": texts.cast(kind) for kind in (pa.string(), pa.binary(), pa.binary(14))}
    columns["nulls"] = pa.array(rows % 5, mask=rows % 3 == 0)
    ours, others = [*columns], ["delta", "split", "list", "decimal"]
    columns |= {"delta": rows, "split": rows / 7, "list": [[1]] * 1000, "decimal": pa.array([Decimal(1)] * 1000)}
    encodings = {"delta": "DELTA_BINARY_PACKED", "split": "BYTE_STREAM_SPLIT"}
    options = {"compression": codec, "data_page_version": page, "column_encoding": encodings}
    pq.write_table(pa.table(columns), path, use_dictionary=[*ours, "decimal"], **options)
    booleans = pq.read_metadata(path).row_group(0).column(ours.index("bool"))
    assert ("PLAIN" in booleans.encodings) == (page == "1.0")
    assert decoded_names(path, ours + others) == {*ours}
    assert scanned(path, ours, 300) == expected(path, ours)


def plain(array: pa.Array) -> pa.Array:
    """Values without a dictionary, with one NaN and one zero, since Arrow joins those of several dictionaries."""
    array = array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), float("nan"), pc.add(array, 0.0)).cast(array.type)


@given(tables(), OPTIONS, st.sampled_from([13, 1 << 20]))
def test_columns_equal_those_of_arrow(table: pa.Table, options: dict[str, Any], batch_rows: int) -> None:
    """Of every writer's settings: values, nulls and the bits of NaN; as codes, if they may be taken so, the values."""
    with tempfile.TemporaryDirectory() as folder:
        path, names = Path(folder) / "a.parquet", table.column_names
        pq.write_table(table, path, **options)
        assert scanned(path, names, batch_rows) == expected(path, names)
        scan = plan(path, names)
        batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema, batch_rows, names)]
        whole = pq.read_table(path)
        for name in names:
            values = [value for batch in batches for value in bits(plain(batch.column(name)))]
            assert values == [value for chunk in whole[name].chunks for value in bits(plain(chunk))]


@pytest.mark.parametrize("nan", ["drop", "half"])
@pytest.mark.parametrize("rows", [5000, 700])
def test_counting_by_code_changes_no_value(tmp_path: Path, nan: str, rows: int) -> None:
    """Scores and ids of both codings have equal results, also with NaN scores, nulls and filters."""
    rng = np.random.default_rng(3)
    score = rng.choice(np.array([0.1, 0.2, 0.3, -0.0, 0.0, np.nan, -1, np.inf], np.float32), 5000)
    ids = rng.choice(np.array([5, -7, 1 << 40]), 5000)
    results: list[list[str]] = []
    table = pa.table(
        {
            "label": rng.integers(0, 2, 5000),
            "score": score,
            "some": pa.array(score, mask=rng.random(5000) < 0.1),
            "cluster": ids,
            "lone": pa.array(ids, mask=rng.random(5000) < 0.1),
        }
    )
    for coded in (True, False):
        path = tmp_path / f"{coded}.parquet"
        pq.write_table(table, path, use_dictionary=coded, row_group_size=rows)
        for where in (None, "score > 0.1 or label = 1"):
            scores = evaluate(path, label="label", score=["score", "some"], nan=nan, where=where)
            clusters = evaluate(path, label="label", cluster=["cluster", "lone"], nulls="singleton", where=where)
            results.append([repr((each.scalars, each.counts, each.dropped)) for each in (scores, clusters)])
    assert results[:2] == results[2:]


@given(tables(), OPTIONS, st.data())
def test_damaged_pages_are_refused_or_equal(table: pa.Table, options: dict[str, Any], data: st.DataObject) -> None:
    """Bytes of pages and headers that are flipped or overwritten never crash or give a number that Arrow does not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        pq.write_table(table, path, **options)
        raw = bytearray(path.read_bytes())
        end = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
        for place in data.draw(st.lists(st.integers(4, end - 1), min_size=1, max_size=3)):
            raw[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from([raw[place] ^ 1, raw[place] ^ 128])))
        path.write_bytes(raw)
        for name in table.column_names:
            try:
                values = scanned(path, [name], 1 << 20)
            except CorruptFileError:
                continue
            with suppress(OSError):  # of Arrow, for what does not matter here, such as the bytes of statistics
                assert values == expected(path, [name])


def test_levels_of_old_writers_are_bits_from_the_highest_on() -> None:
    """Definition levels that are bit-packed have no length, and those of nulls are 0 ("Bit-packed (Deprecated)")."""
    present = np.array([1, 0, 1, 1, 0, 0, 1, 1, 0, 1], np.uint8)
    body, table = np.append(np.packbits(present), np.uint8(9)), np.zeros((1, kernels.COLUMNS), np.int64)
    fields = {kernels.COUNT: 10, kernels.LEVELS: kernels.BIT_PACKED, kernels.SIZE: body.size}
    for place, number in (fields | {kernels.ADDRESS: body.ctypes.data}).items():
        table[0, place] = number
    assert kernels.find_values(table, True) == 0
    assert table[0, kernels.START] == 2
    streams = np.array([*table[0, [kernels.LEVELS_ADDRESS, kernels.LEVELS_SIZE, kernels.COUNT]], kernels.REVERSED])
    levels = np.zeros(10, np.uint8)
    assert kernels.unpack(streams[:, None].copy(), 2, levels)
    assert levels.tolist() == present.tolist()
    table[0, kernels.SIZE] = 1
    assert kernels.find_values(table, True) == -1


def test_damaged_column_is_named(tmp_path: Path) -> None:
    """The message has the file, the column and a remedy."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": np.arange(999) % 7}), path, compression="none", write_page_checksum=True)
    raw = bytearray(path.read_bytes())
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    raw[chunk.dictionary_page_offset + chunk.total_compressed_size - 9] ^= 4
    path.write_bytes(raw)
    with pytest.raises(CorruptFileError, match=r"a.parquet: cannot be read: column 's' is damaged: .*; replace"):
        scanned(path, ["s"], 1 << 20)


def test_a_negative_number_of_rows_is_refused(tmp_path: Path) -> None:
    """Pages of the second version state their rows beside their values."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": np.arange(493) % 9}), path, data_page_version="2.0")
    header, lying = bytes.fromhex("15da07 1500 15da07"), bytes.fromhex("15da07 1500 15d907")
    assert path.read_bytes().count(header) == 1
    path.write_bytes(path.read_bytes().replace(header, lying))
    with pytest.raises(OSError, match="negative number of rows"):
        expected(path, ["s"])
    with pytest.raises(CorruptFileError, match=r"a.parquet: .*column 's' is damaged"):
        scanned(path, ["s"], 1 << 20)


@pytest.mark.parametrize(
    ("nullable", "old", "new"),
    [
        (True, "03000000da0701", "03000000da07f0"),  # a level of 240 instead of 1
        (True, "03000000da0701", "03000000ff0701"),  # 511 groups of levels in a byte, instead of 493 times 1
        (False, "047d", "047f"),  # 63 groups of codes in the bytes of 62
        (False, "f403", "f203"),  # a page without its last byte, which has no code that counts
        (False, "f403", "f003"),  # nor with the one before, which has the last code
    ],
)
def test_runs_end_with_their_bytes(tmp_path: Path, nullable: bool, old: str, new: str) -> None:
    """Runs of levels and codes that say more than their bytes hold are refused where Arrow refuses them."""
    path, column = tmp_path / "a.parquet", pa.field("s", pa.int64(), nullable)
    values = np.arange(493) * 7 % 9  # 62 groups of codes of 4 bits, of which the last has five
    pq.write_table(pa.table({"s": values}, schema=pa.schema([column])), path, compression="none")
    raw = path.read_bytes()
    assert bytes.fromhex(old) in raw
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    path.write_bytes(raw[:start] + raw[start:].replace(bytes.fromhex(old), bytes.fromhex(new), 1 + (old == "f403")))
    if new == "f203":
        assert scanned(path, ["s"], 1 << 20) == expected(path, ["s"]) == {"s": values.tolist()}
        return
    with pytest.raises(OSError, match=r"levels|stream"):
        expected(path, ["s"])
    with pytest.raises(CorruptFileError, match=r"a.parquet: .*column 's' is damaged: the levels or codes of a page"):
        scanned(path, ["s"], 1 << 20)
