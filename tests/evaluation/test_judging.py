"""Rules held against an evaluation: what they judge, what they imply, and what the command line says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import run

from streameval import evaluate
from streameval.errors import OptionError
from streameval.evaluation.judging import implied, rules_of_data

DATA = Path(__file__).parents[1] / "data" / "spam_messages"


@pytest.fixture(scope="module")
def table():
    """Two scores of 3,000 rows in 600 units; the second is better."""
    rng = np.random.default_rng(7)
    unit = rng.integers(0, 600, 3000)
    label = (rng.random(600) < 0.4)[unit]
    scores = {name: label * gain + rng.normal(size=600)[unit] for name, gain in (("v1", 1.0), ("v2", 1.5))}
    return pa.table({"label": label, "unit": unit, **scores})


@pytest.fixture(scope="module")
def found(table):
    """Their values, with intervals at 0.95."""
    return evaluate(table, score=["v1", "v2"], unit="unit", metrics=["roc_auc", "agc"], threads=1)


def outcomes(evaluation, *rules):
    """What some rules say."""
    return [one.outcome for one in evaluation.judge(rules).judgements]


def test_values_and_their_differences_are_judged(table):
    """Without intervals where no rule has a level."""
    found = evaluate(table, score=["v1", "v2"], threads=1)
    gain = found.value("roc_auc", "v2") - found.value("roc_auc", "v1")
    rules = [f"roc_auc[v2] - roc_auc[v1] >= {gain - 1e-9}", f"roc_auc[v2] - roc_auc[v1] > {gain + 1e-9}"]
    assert outcomes(found, *rules, "rows == 3000", "positives <= 1%") == ["passed", "failed", "passed", "failed"]
    made = found.judge({"gain": rules[0]})
    assert (made.judgements[0].rule, made.judgements[0].text, made.passed) == ("gain", rules[0], True)
    assert (made.judgements[0].value, made.judgements[0].ci_lower) == (gain, None)
    assert found.judgements == ()
    with pytest.raises(OptionError, match="no sampling intervals were asked for"):
        found.judge("roc_auc[v1] >= 0.5 @95%")


def test_a_level_judges_the_interval_of_that_level(found):
    """The one that results show, or another one of the same replicates."""
    low, high = found.ci("roc_auc", "v1")
    for bound, expected in ((low - 1e-6, ("passed", "passed")), (low + 1e-6, ("passed", "failed")),
                            (high + 1e-6, ("failed", "failed"))):  # fmt: skip
        both = (f"roc_auc[v1] >= {bound} @95%", f"roc_auc[v1] >= {bound} proven @95%")
        assert tuple(outcomes(found, *both)) == expected
    narrow, wide = (found.judge(f"roc_auc[v1] >= 0 @{level}%").judgements[0] for level in (80, 99))
    assert wide.ci_lower < low < narrow.ci_lower < narrow.ci_upper < high < wide.ci_upper
    assert (wide.ci_level, narrow.ci_level) == (0.99, 0.8)


def test_rules_judge_metrics_of_samples_and_sketches(table, tmp_path):
    """Those of a sample have an interval, also where nothing else is computed."""
    pq.write_table(table, tmp_path / "a.parquet")
    asked = ["evaluate", tmp_path, "--score", "v1", "--approx-agc", "--sample", 0.5, "--sketch", "v2", "--metric"]
    rules = [word for rule in ("agc_approx >= 0.1 @95%", "quantile@0.5[v2] <= 5") for word in ("--rule", rule)]
    done = run(*asked, "agc_approx", "--metric", "quantiles", "--unit", "unit", *rules)
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["ok", "ok"]
    assert "@95% by unit" in done.stdout


def test_few_units_leave_a_rule_undecided(table):
    """With the reason; the evaluation has not passed then, unless the rule lets it."""
    few = table.append_column("one", pa.array(np.arange(3000) % 3))
    found = evaluate(few, score="v1", unit="one", metrics="roc_auc", threads=1)
    made = found.judge("roc_auc >= 0.5 @95%")
    assert (made.passed, made.judgements[0].outcome) == (False, "undecided")
    assert "effective units" in made.judgements[0].reason
    assert found.judge("roc_auc >= 0.5 @95% or undecided").passed


def test_rules_imply_what_they_need():
    """An interval at the highest level, the baseline of a difference with a level, common rows of one without."""
    rules = rules_of_data(["a[x] >= 0 @90%", "a[x] - a[y] >= 0 @95%", "a[x] - a[z] >= 0"])
    assert implied(rules, {"baseline": ("w",)}) == {"ci": 0.95, "baseline": ["w", "y"]}
    assert implied(rules[:1], {"ci": 0.5}) == {}
    assert implied(rules[2:], {}) == {"common_rows": True}


LAUNCH = ("evaluate", DATA, "--score", "score_lr", "--score", "score_nb", "--metric", "roc_auc", "--threads", 1)


def test_the_command_line_is_a_gate(tmp_path):
    """Lines after the results; status 3 where a rule fails; rules of a file have names; JSON has them."""
    good, bad = "roc_auc[score_lr] >= 0.9 @95%", "roc_auc[score_nb] - roc_auc[score_lr] >= 0.5 proven @95%"
    done = run(*LAUNCH, "--unit", "campaign", "--rule", good)
    assert (done.exit_code, done.stdout.splitlines()[-1].split("  ")[:2]) == (0, ["ok", good])
    done = run(*LAUNCH, "--unit", "campaign", "--rule", good, "--rule", bad)
    assert (done.exit_code, [line.split()[0] for line in done.stdout.splitlines()[-2:]]) == (3, ["ok", "FAIL"])
    assert "by campaign" in done.stdout.splitlines()[-1]
    (tmp_path / "rules.toml").write_text(f'floor = "{good}"\n')
    done = run(*LAUNCH, "--rules", tmp_path / "rules.toml", "--rule", bad, "--json", "-")
    told = json.loads(done.stdout)
    assert [one["rule"] for one in told["rules"]] == [bad, "floor"]
    assert (done.exit_code, "FAIL" in done.stderr, told["options"]["ci"]) == (3, True, 0.95)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("roc_auk[score_lr] >= 0.9", "did you mean 'roc_auc'?"),
        ("average_precision[score_lr] >= 0.9", "no average_precision is computed"),
        ("roc_auc >= 0.9", "say which in brackets"),
        ("roc_auc[score_q] >= 0.9", "no roc_auc of 'score_q' is computed"),
        ("roc_auc[score_lr] - roc_auc[v0] >= 0", "no roc_auc of 'v0' is computed"),
        ("roc_auc[score_lr] drop <= 0.1", "judge those of a store"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_data_are_read(rule, expected):
    """Even if there are no data."""
    done = run("evaluate", "/nowhere", *LAUNCH[2:], "--rule", rule)
    assert done.exit_code in (1, 2)
    assert expected in done.stderr


def test_a_rule_of_slices_names_slices_and_one_column_that_are_there() -> None:
    """Each refusal says what is missing."""
    data = pa.table({"label": [0, 1] * 4, "a": np.arange(8) / 8, "b": np.arange(8) / 9, "zone": ["x", "y"] * 4})
    found = evaluate(data, score=["a", "b"], by="zone", metrics="roc_auc")
    for rule, reason in (
        ("roc_auc[a] {country=*} >= 0.5", "there are no slices by country; name them"),
        ("roc_auc {zone=*} >= 0.5", "it is of a, b; say which in brackets"),
        ("pr_auc[a] {zone=*} >= 0.5", "it was not computed"),
    ):
        with pytest.raises(OptionError, match=reason):
            found.judge(rule)
