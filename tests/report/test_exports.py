"""Results for other tools: their names, their formats, and nothing lost on the way."""

import json
import math
import re
from pathlib import Path

import pyarrow as pa
from files import put
from hypothesis import given
from hypothesis import strategies as st
from processes import run

from streameval import Store, evaluate
from streameval.report.exports import Sample, plain_names, prometheus

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
DATA = pa.table({"label": [0, 1, 0, 1], "score": [0.1, 0.4, 0.8, 0.9], "country": ["DE", "DE", 'a"\\\nb', 'a"\\\nb']})


@given(st.lists(TEXTS, unique=True, max_size=6))
def test_names_have_plain_characters_and_stay_different(texts: list[str]) -> None:
    """Whatever the metric, the column and the slice are called."""
    names = plain_names(texts)
    assert len(set(names.values())) == len(texts)
    assert all(re.fullmatch(r"[A-Za-z0-9_./-]+", name) for name in names.values())


@given(st.dictionaries(TEXTS, TEXTS, max_size=3), st.floats())
def test_prometheus_reads_every_line(labels: dict[str, str], value: float) -> None:
    """Labels that are no identifiers, texts with quotes and ends of lines, and every float."""
    *_, line = prometheus([Sample("tpr@fpr=0.001", labels, value, "a\nb\\")]).strip("\n").split("\n")
    parts = LINE.fullmatch(line)
    assert parts[1] == "streameval_tpr_at_fpr_0_001"
    texts = re.findall(r'="((?:[^"\\]|\\.)*)"', parts[2] or "")
    assert [re.sub(r"\\(.)", lambda c: "\n" if c[1] == "n" else c[1], text) for text in texts] == list(labels.values())
    number = float(parts[3].replace("Inf", "inf"))
    assert number == value or math.isnan(number) == math.isnan(value) is True


def test_every_value_is_among_the_scalars() -> None:
    """Values, differences and the ends of intervals, of all rows and of slices."""
    evaluation = evaluate(DATA, score="score", at="fpr=0.001", by="country", ci=0.9)
    numbers = evaluation.scalars()
    ends = (each for one in evaluation.results for each in (one.ci_lower, one.ci_upper) if each is not None)
    assert len(numbers) == 2 + len(evaluation.results) + len(list(ends))
    assert numbers["rows"] == 4.0
    assert numbers["tpr_at_fpr_0.001/score"] == evaluation.value("tpr@fpr=0.001")
    assert numbers["roc_auc/score/country_DE"] == evaluation.value("roc_auc", slice={"country": "DE"})


def test_files_for_other_tools(tmp_path: Path) -> None:
    """Of an evaluation with rules, a history and a check; the outcome of a rule is an assertion about its column."""
    night = tmp_path / "data" / "night=2026-01-01"
    put(night / "a.parquet", DATA)
    store, rule = Store(tmp_path / "store"), "roc_auc[score] >= 0.99"
    store.update(tmp_path / "data", score="score")
    for verb in (["check", store.name, "--rule", rule], ["evaluate", night, "--score", "score", "--rule", rule]):
        assert run(*verb, "--out", tmp_path / "a.prom", "--out", tmp_path / "a.openlineage.json").exit_code == 3
        [judged] = json.loads((tmp_path / "a.openlineage.json").read_text())["inputs"]
        [assertion] = judged["inputFacets"]["dataQualityAssertions"]["assertions"]
        assert assertion == {"assertion": rule, "success": False, "column": "score"}
        text = (tmp_path / "a.prom").read_text()
        assert re.search(r"^streameval_rule_passed\{[^\n]*\} 0.0$", text, re.MULTILINE)
    assert run("history", store.name, "--metric", "roc_auc", "--out", tmp_path / "b.prom").exit_code == 0
    assert 'streameval_roc_auc{partition="night=2026-01-01",of="score"} 0.75' in (tmp_path / "b.prom").read_text()
