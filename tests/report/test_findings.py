"""A page and the terminal say the same: findings about slices, verdicts and their numbers."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from streameval import evaluate
from streameval.report.terminal import render
from streameval.report.values import slices_said

if TYPE_CHECKING:
    from streameval import Evaluation


@pytest.fixture(scope="module")
def found() -> Evaluation:
    """A second score that is better everywhere but in one country."""
    rng = np.random.default_rng(0)
    label, country = rng.integers(0, 2, 4000), np.array(["DE", "FR", "NG", "US"])[np.minimum(np.arange(4000) % 10, 3)]
    old, new = label + 1.2 * rng.normal(size=4000), label + 0.5 * rng.normal(size=4000)
    new[country == "NG"] = rng.normal(size=400)
    columns = {"label": label, "old": old, "new": new, "country": country, "unit": np.arange(4000) // 4}
    options = {"metrics": ["roc_auc", "average_precision"], "by": "country", "baseline": "old", "unit": "unit"}
    return evaluate(pa.table(columns), score=["old", "new"], **options)


def test_the_loss_in_a_slice_leads(found: Evaluation) -> None:
    """Beside the gain overall, on the page and in the terminal."""
    [sentence] = slices_said(found.results)
    assert sentence.startswith("new is worse than old in 1 slice: {country=NG}, ")
    page, terminal = found.to_html(), str(found)
    lead = page[: page.index("<section", page.index("<main"))]
    assert "new is better than old" in lead
    assert sentence in lead
    assert sentence in " ".join(terminal.split())
    assert "▼ worse" in terminal


def test_every_number_of_the_terminal_is_on_the_page(found: Evaluation) -> None:
    """To four decimals: values, differences and the ends of their intervals."""
    page = re.sub(r"<[^>]*>", " ", found.to_html()).replace("\u2009", "")
    numbers = set(re.findall(r"[−+]?\d\.\d{4}\b", str(found)))
    assert numbers
    assert {number for number in numbers if number.lstrip("−+") not in page} == set()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_width_of_a_terminal_loses_anything(found: Evaluation, width: int) -> None:
    """Names, numbers with their intervals, and verdicts stand whole at every width."""

    def shown(width: int) -> str:
        sink = io.StringIO()
        Console(file=sink, width=width, force_terminal=True, color_system=None, highlight=False).print(render(found))
        return sink.getvalue()

    narrow, wide = shown(width), shown(10_000)
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= width
    whole = set(
        re.findall(r"[−+]?\d\.\d{4} \[[^]]*\]|▼ worse|▲ better|not shown|\b(?:roc_auc|average_precision)\b", wide)
    )
    assert {part for part in whole if part not in narrow} == set()


def test_slices_are_those_of_the_compared_score(found: Evaluation) -> None:
    """The first column of the table of slices, by which it is sorted, and the differences, the worst first."""
    page = found.to_html()
    differences = page[page.index("By country, differences") :]
    assert differences.index("NG") < differences.index("DE")
    assert "shortfall of roc_auc of new" in re.sub(r"<[^>]*>", "", page)
