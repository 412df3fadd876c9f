"""``streameval sketch``: quantiles of each class, and a picture."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from streameval.cli import main
from streameval.errors import LabelError, OptionError
from streameval.evaluation.quantile_sketch import sketches_by_label
from streameval.plots.comparisons import plot_quantiles

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str) -> Any:
    """Run the command."""
    return CliRunner().invoke(main, ["sketch", *arguments])


LABELS: dict[str, tuple[Any, Any, Any]] = {  # labels, which are positive, pos_label
    "numbers": ([0, 1, 1, 0, None, 1], [False, True, True, False, None, True], None),
    "booleans": ([False, True, True, False, None, True], [False, True, True, False, None, True], None),
    "signs": ([-1.0, 1.0, 1.0, -1.0, float("nan"), 1.0], [False, True, True, False, None, True], None),
    "texts": (["ham", "spam", "spam", "ham", None, "spam"], [False, True, True, False, None, True], "spam"),
    "chosen": ([1, 2, 2, 1, None, 2], [False, True, True, False, None, True], "2"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_each_class_has_its_rows(kind: str, tmp_path: Path) -> None:
    """Negatives and positives of any type of label; rows without a label are in neither."""
    labels, positive, pos_label = LABELS[kind]
    score = np.arange(6) / 10
    pq.write_table(pa.table({"y": labels, "s": score}), tmp_path / "a.parquet")
    more = ["--pos-label", pos_label] if pos_label else []
    done = run(str(tmp_path / "a.parquet"), "--column", "s", "--by-label", "--label", "y", *more,
               "--quantile", "0", "--quantile", "1", "--json", "-")  # fmt: skip
    assert done.exit_code == 0, done.output
    whole, negative, positive_facts = json.loads(done.stdout)
    assert whole["count"] == 6
    assert "class" not in whole
    for facts, side in ((negative, False), (positive_facts, True)):
        mine = [s for s, p in zip(score.tolist(), positive, strict=True) if p is side]
        assert facts["class"] == ("positive" if side else "negative")
        assert facts["count"] == len(mine)
        assert [q["value"] for q in facts["quantiles"]] == [min(mine), max(mine)]


def test_labels_that_are_not_two_classes_are_refused(tmp_path: Path) -> None:
    """Never a guess; and options that do nothing are refused."""
    for labels, text in (([0, 1, 2], "1"), ([1, 2, 2], "1 and 2"), (["a", "b", "b"], "label")):
        with pytest.raises(LabelError, match=text):
            sketches_by_label(pa.table({"label": labels, "s": [0.1, 0.2, 0.3]}), "s")
    with pytest.raises(LabelError, match="has the label 'c'"):
        sketches_by_label(pa.table({"label": ["a", "b"], "s": [0.1, 0.2]}), "s", pos_label="c")
    pq.write_table(pa.table({"label": [0, 1], "s": [0.1, 0.2]}), tmp_path / "a.parquet")
    done = run(str(tmp_path / "a.parquet"), "--column", "s", "--label", "label")
    assert done.exit_code == 2
    assert "--by-label" in done.output


def test_a_picture_of_the_distributions(tmp_path: Path) -> None:
    """One line for all rows and one for each class; refused before anything is read where it cannot be written."""
    pq.write_table(pa.table({"label": [0, 1, 1], "s": [0.1, 0.2, 0.3]}), tmp_path / "a.parquet")
    data = str(tmp_path / "a.parquet")
    done = run(data, "--column", "s", "--by-label", "--plot", str(tmp_path / "a.svg"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.svg").stat().st_size > 1000
    assert run(data, "--column", "s", "--plot", str(tmp_path / "none" / "a.svg")).exit_code == 1
    assert run(data, "--column", "s", "--plot", str(tmp_path / "a.jpg")).exit_code != 0
    axes = plot_quantiles({"a": ([0, 0.5, 1], [-np.inf, 1.0, 2.0]), "b": ([0.5], [np.nan])})
    assert len(axes.get_lines()) == 1
    assert np.asarray(axes.get_lines()[0].get_xdata()).tolist() == [1.0, 2.0]
    with pytest.raises(OptionError, match="nothing to draw"):
        plot_quantiles({"a": ([0.5], [np.nan])})
