"""A page and the terminal say the same: findings about slices, verdicts and their numbers."""

from __future__ import annotations

import html
import inspect
import io
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from streameval import Store, attribute, evaluate
from streameval.errors import DataError
from streameval.report.values import slices_said
from streameval.store.nights.maturity import Maturity, MaturityRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval import Evaluation
    from streameval.evaluation.cost_tables import Attribution
    from streameval.store.nights.gate import Check
    from streameval.store.nights.history import Histories, History

    Page = Evaluation | Check | History | Histories | Maturity


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


def test_the_headline_of_calibration_says_how_far_it_is_off() -> None:
    """Not by the Brier score alone, which a better ranking lowers as well."""
    page = results("calibration").to_html()
    lead = page[: page.index("<section", page.index("<main"))]
    assert re.search(r"Calibration of new: ECE 0\.\d+, miscalibration 0\.\d+, slope", lead)


def results(name: str) -> Evaluation | Attribution:
    """A result of each kind that a page shows, of the same rows."""
    rng = np.random.default_rng(1)
    rows, label = np.arange(2000), rng.integers(0, 2, 2000)
    old = 1 / (1 + np.exp(1 - 2 * label - rng.normal(size=2000)))
    columns = {"id": rows, "label": label, "old": old, "new": rng.random(2000), "cluster": rng.integers(0, 300, 2000)}
    columns |= {"class": columns["cluster"] // 3, "kind": np.array(["a", "b", "c"])[rows % 3], "user": rows % 97}
    columns |= {"p_a": old, "p_b": columns["new"], "p_c": old * 2, "few": pa.array(label, mask=rows % 10 == 0)}
    columns |= {"gap": pa.array(old, mask=rows % 50 == 0), "unit": rows // 4, "coarse": rows // 100}
    columns["sent"] = pa.array(rows * 7 * 60, pa.timestamp("s", "Europe/Berlin"))
    data, auc = pa.table(columns), ["roc_auc"]
    late = data.select(["id", "label"]).slice(0, 900)
    unknown = {"nan": "drop", "label": "few", "unlabelled": "drop", "unit": "unit"}
    return {
        "calibration": lambda: evaluate(data, score=["old", "new"], metrics=["calibration"], unit="unit"),
        "classes": lambda: evaluate(data, cluster="cluster", classes="class"),
        "points": lambda: evaluate(data, score="old", at=["fpr=0.01", "k=100"], metrics=["roc_auc", "f1_max"]),
        "rest": lambda: evaluate(data, score="old", against="rest", unit="coarse", by="kind", metrics=auc),
        "dropped": lambda: evaluate(data, score=["gap", "old"], baseline="old", **unknown),
        "multiclass": lambda: evaluate(data, label="kind", score="p_{class}", metrics=auc, unit="unit"),
        "hours": lambda: evaluate(data, score="old", by="hour(sent)", metrics=auc),
        "means": lambda: evaluate(data, score="old", mean_over="user", unit="user", metrics=auc),
        "bounds": lambda: evaluate(data, score="old", approx=True, approx_agc=True, metrics=["roc_auc", "agc_approx"]),
        "undefined": lambda: evaluate(data.filter(pc.field("label") == 1), score="old"),
        "late": lambda: evaluate(data.drop_columns(["label"]), score="old", labels=late, on="id", metrics=auc),
        "crossed": lambda: evaluate(data, score=["old", "new"], baseline="old", unit="user,coarse", metrics=auc),
        "sampled": lambda: evaluate(data, score=["old", "new"], label="few", sampled_by="uniform"),
        "strata": lambda: evaluate(data, score="old", label="few", sampled_by="strata=kind", at="fpr=0.1", metrics=auc),
        "quantiles": lambda: evaluate(data, sketch="old", metrics=["quantiles"]),
        "costs": lambda: attribute(data, cluster="cluster", classes="class", label="label"),
        "changed": lambda: attribute(data, cluster="cluster", changed_from="class"),
        "lowest": lambda: attribute(data, score="new", by="kind", unit="unit"),
    }[name]()


KINDS = re.findall(r'"(\w+)": lambda', inspect.getsource(results))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Eight nights with slices and units, the last of them worse, and a night that could not be folded."""
    rng, root = np.random.default_rng(2), tmp_path_factory.mktemp("nights")
    for day in range(1, 10):
        label, rows = rng.integers(0, 2, 300), np.arange(300)
        old, new = label + rng.normal(size=300) * (3 if day == 8 else 0.6), label + rng.normal(size=300)
        columns = {"label": pa.array(label, mask=rows < (day == 9)), "old": old, "new": new, "unit": rows // 3}
        columns |= {"cluster": rng.integers(0, 60, 300), "kind": np.array(["a", "b", "c"])[rows % 3]}
        (night := root / "data" / f"night=2026-01-{day:02}").mkdir(parents=True)
        pq.write_table(pa.table(columns), night / "a.parquet")
    made = Store(root / "store", threads=1)
    with pytest.raises(DataError, match="label column 'label' has nulls"):
        made.update(root / "data", score=["old", "new"], cluster="cluster", unit="unit", by="kind")
    return made


RULES = [
    "roc_auc[old] >= 0.9",
    "roc_auc[old] drop <= 0.05 @95%",
    "roc_auc[new]{kind=*} >= 0.4 always @95%",
    "aul[cluster] >= 0.3 always @95%",
    "roc_auc[new] drop <= 0.1 always @95% each",
    "roc_auc[old] - roc_auc[new] >= 0.1 proven @95%",
    "nulls[label] == 0",
    "positives <= 40%",
    "missing <= 2",
    "rows drop <= 10%",
    "drift_ks[old] <= 0.05 @95%",
    "missing == 0",
]
OF_STORE: dict[str, Callable[[Store], Page]] = {
    "check": lambda store: store.check(RULES, since="2026-01-07"),
    "history": lambda store: store.history("roc_auc", of="old"),
    "histories": lambda store: store.history(["roc_auc", "aul"]),
    "maturity": lambda _: Maturity(
        "roc_auc", "old", (1,), (MaturityRow("a night", 1, 0.5, 0.25, 0.8, -0.02),), 0, None
    ),
    "nights": lambda store: store.evaluate(last=3, against="2026-01-01..2026-01-03", by="kind"),
}


def ends(bounded: re.Match[str]) -> str:
    """A value with a half-width, as a page shows it."""
    value, width = float(bounded[1]), float(bounded[2])
    return f"{value} {value - width:.6f} {value + width:.6f}"


@pytest.mark.parametrize("name", ["found", *KINDS, *OF_STORE])
def test_a_page_says_all_that_the_terminal_says(name: str, found: Evaluation, store: Store) -> None:
    """Every sentence, and every number, which either may round further; a page calls small p-values < 0.001."""
    shown = found if name == "found" else OF_STORE[name](store) if name in OF_STORE else results(name)
    sink = io.StringIO()
    Console(file=sink, width=10_000, color_system=None, highlight=False).print(shown.render(plain=True))
    page = html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<(style|script).*?</\1>", " ", shown.to_html())))
    page = page.replace("\u2009", "")
    lines = [line for line in re.sub(r"(\S+) ± (\S+)", ends, sink.getvalue()).splitlines() if line.strip()]
    sentences = [line for line in lines[1:] if not line.startswith(" ")]
    # directories do not travel, and the tables of a page say beside each value that it has no interval
    sentences = [re.sub(r"/\S*/|(?<=^no interval) of [^:]*", "", line) for line in sentences]
    said = [part for line in sentences for part in re.split(r": |  +|, (?:usual )?", line)]
    tight = re.sub(r"\W", "", page).lower()
    assert [part for part in said if re.search("[a-z]", part) and re.sub(r"\W", "", part).lower() not in tight] == []
    there = np.array([float(x.replace(",", "")) for x in re.findall(r"\d[\d,]*(?:\.\d+)?", page)])
    for text in set(re.findall(r"\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?", "\n".join(lines))):
        value = float(text.replace(",", ""))
        assert np.abs(there - value).min() <= 1.1e-4 * max(1, value) or value < 1e-3, text


def test_slices_are_those_of_the_compared_score(found: Evaluation) -> None:
    """The first column of the table of slices, by which it is sorted, and the differences, the worst first."""
    page = found.to_html()
    differences = page[page.index("By country, differences") :]
    assert differences.index("NG") < differences.index("DE")
    assert "shortfall of roc_auc of new" in re.sub(r"<[^>]*>", "", page)
