"""Texts that are cut stay apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streameval.wording import apart

LETTERS = st.text("ab/", min_size=0, max_size=60)


@given(st.lists(LETTERS, min_size=1, max_size=12, unique=True), st.integers(14, 40), st.booleans())
def test_texts_that_are_cut_stay_different(texts: list[str], most: int, middle: bool) -> None:
    """Each at most as long as asked, and each its own; a text that is short enough is itself."""
    found = apart(texts, most, most // 3 if middle else 0)
    assert all(len(text) <= most for text in found)
    assert len(set(found)) == len(texts)
    assert all(short == text for short, text in zip(found, texts, strict=True) if len(text) <= most)


def test_pages_of_one_shop_are_told_apart() -> None:
    """Eleven slices of a plot had three names."""
    pages = [f"https://shop.example.com/{a}/index.html?segment={b}" for a in "abc" for b in ("x1", "x2")]
    found = apart(pages, 28, 9)
    assert found[:3] == ["https://…m/a/inde…gment=x1", "https://…m/a/inde…gment=x2", "https://…m/b/inde…gment=x1"]
    assert len(set(found)) == 6
