"""Pages of Snappy are what Arrow's codec makes of them; damaged ones are refused and nothing beyond them is written."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.kernels import pages as kernels

SNAPPY = pa.Codec("snappy")
GUARD = 171


def varint(number: int) -> bytes:
    """A number in groups of seven bits."""
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def literal(text: bytes, octets: int = 0) -> bytes:
    """An element that holds a text, its length in the tag or in so many bytes behind it."""
    length = len(text) - 1
    return (bytes([59 + octets << 2]) + length.to_bytes(octets, "little") if octets else bytes([length << 2])) + text


def copy(length: int, distance: int, octets: int) -> bytes:
    """An element that repeats earlier bytes, with a distance of 1 (and three bits of the tag), 2 or 4 bytes."""
    if octets == 1:
        return bytes([1 | length - 4 << 2 | distance >> 8 << 5, distance & 255])
    return bytes([(2 if octets == 2 else 3) | length - 1 << 2]) + distance.to_bytes(octets, "little")


@st.composite
def elements(draw: st.DrawFn) -> bytes:
    """A page of elements of every form, and short or long ones beside each other."""
    text, data = b"", b""
    for _ in range(draw(st.integers(0, 12))):
        if not text or draw(st.booleans()):
            octets = draw(st.integers(0, 4))
            size = draw(st.integers(1, 60) | st.sampled_from([1, 16, 17, 60])) if octets < 2 else 300
            more = draw(st.binary(min_size=size, max_size=size))
            text, data = text + more, data + literal(more, octets)
        else:
            octets = draw(st.sampled_from([1, 2, 4]))
            length = draw(st.integers(4, 11) if octets == 1 else st.integers(1, 64))
            distance = draw(st.integers(1, min(len(text), 2047)) | st.integers(1, min(len(text), 9)))
            data += copy(length, distance, octets)
            for _ in range(length):
                text += text[-distance : len(text) - distance + 1]
    return varint(len(text)) + data


def decompressed(pages: list[bytes], sizes: list[int]) -> list[bytes] | None:
    """What a window of pages holds, by the loop; `None` if one is refused. Nothing behind them may change."""
    table = np.full((len(pages), kernels.COLUMNS), kernels.ABSENT)
    ends = np.cumsum([len(page) for page in pages])
    table[:, kernels.PLACE], table[:, kernels.STORED] = ends - [len(page) for page in pages], [len(p) for p in pages]
    table[:, kernels.LEVELS_SIZE], table[:, kernels.SIZE] = 0, sizes
    table[:, kernels.UNFINISHED] = range(len(pages))
    room = np.full(sum(sizes) + kernels.SPARE + 8, GUARD, np.uint8)
    data = np.frombuffer(b"".join(pages), np.uint8)
    whole = kernels.decompress(data, len(pages), table, room[: room.size - 8])
    assert (room[room.size - 8 :] == GUARD).all()
    if not whole:
        return None
    starts = table[:, kernels.ADDRESS] - room.ctypes.data
    return [bytes(room[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def by_arrow(page: bytes, size: int) -> bytes | None:
    """What a page of a stated size holds by Arrow's codec."""
    try:
        return SNAPPY.decompress(page, size, asbytes=True)
    except (pa.ArrowException, OSError):
        return None


@given(pages=st.lists(elements(), min_size=1, max_size=4))
def test_every_form_of_element(pages: list[bytes]) -> None:
    """Literals and copies of every length and distance are what Arrow's codec makes of them."""
    sizes = [stated(page) for page in pages]
    assert decompressed(pages, sizes) == [by_arrow(page, size) for page, size in zip(pages, sizes, strict=True)]


def stated(page: bytes) -> int:
    """The size that a page begins with."""
    end = next(i for i, byte in enumerate(page) if byte < 128)
    return sum((byte & 127) << 7 * i for i, byte in enumerate(page[: end + 1]))


@pytest.mark.parametrize("distinct", [1, 3, 1000, 1 << 40])
@given(seed=st.integers(0, 1 << 30), size=st.integers(0, 20_000))
def test_what_a_writer_compresses(distinct: int, seed: int, size: int) -> None:
    """Pages of few and of many values, compressed by Arrow, come back."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(0, distinct, size).tobytes(), rng.integers(0, distinct, size).astype(np.int16).tobytes()]
    pages = [SNAPPY.compress(text, asbytes=True) for text in texts]
    assert decompressed(pages, [len(text) for text in texts]) == texts


@given(page=elements(), data=st.data())
def test_damaged_pages(page: bytes, data: st.DataObject) -> None:
    """A page with other bytes, or cut off, is what Arrow's codec makes of it, or refused by both."""
    damaged, size = bytearray(page), stated(page)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(page) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(1, len(page)))])
    found = decompressed([cut], [size])
    expected = by_arrow(cut, size)
    if expected is not None and stated(cut) != size:  # which Arrow does not tell
        expected = None
    assert (found[0] if found else None) == expected
