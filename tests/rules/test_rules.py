"""Rules: read, judged at the worse end, with levels, and on the results of an evaluation."""

import json
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import run
from refusals import refuses

from streameval import Scalar, evaluate
from streameval.errors import OptionError
from streameval.evaluation.result import complete_options, rules_of_data
from streameval.results import slice_name
from streameval.rules import ENOUGH, Rule, difference, judge


def result(value):
    """A value; a pair is an interval, None is null."""
    if value is None:
        return Scalar.undefined("m", "one class only")
    return Scalar.between("m", sum(value) / 2, *value) if isinstance(value, tuple) else Scalar.certain("m", value)


def judged(text, value, *before):
    """The verdict on a value after others."""
    return judge(Rule.read(text), result(value), list(map(result, before)))


@pytest.mark.parametrize(
    ("rule", "value", "outcome"),
    [
        ("m >= 0.5", 0.5, "passed"),
        ("m > 0.5", 0.5, "failed"),
        ("m[c]<=5e-1", 0.5, "passed"),
        ("m < 0.5", 0.5, "failed"),
        ("m == 0", 0, "passed"),
        ("m == 0", 1, "failed"),
        ("m == 0.5", (0.5, 0.6), "failed"),
        ("m >= 0.5", (0.49, 0.6), "failed"),
        ("m <= 0.5", (0.4, 0.51), "failed"),
        ("m >= 0.5", None, "failed"),
        ("m drop <= 0.1", None, "failed"),
        ("m drop <= 0.1 or undecided", None, "failed"),
        ("m drop <= 0.1", 0.1, "undecided"),
        ("m drop <= 0.1 or undecided", 0.1, "passed"),
    ],
)
def test_bounds_are_judged_at_the_worse_end(rule, value, outcome):
    """What passes, passes for certain; a null value fails, whatever else."""
    assert judged(rule, value).outcome == outcome


@pytest.mark.parametrize(
    ("rule", "value", "outcome"),
    [
        ("m drop <= 0.25", 0.5, "passed"),
        ("m drop < 0.25", 0.5, "failed"),
        ("m drop <= 0.2", 0.5, "failed"),
        ("m drop <= 0", 0.9, "passed"),
        ("m rise <= 0.25", 1.0, "passed"),
        ("m rise <= 0.2", 1.0, "failed"),
        ("m rise <= 0", 0.1, "passed"),
        ("m change <= 0.2", 0.5, "failed"),
        ("m change <= 0.2", 1.0, "failed"),
        ("m change <= 0.25", 0.5, "passed"),
        ("m drop <= 34%", 0.5, "passed"),
        ("m drop <= 33%", 0.5, "failed"),
        ("m change <= 33%", 1.0, "failed"),
    ],
)
def test_distances_are_from_the_usual_value(rule, value, outcome):
    """The median of 0.5, 0.75 and 0.75, absolute or in per cent of it."""
    verdict = judged(rule, value, 0.5, 0.75, 0.75)
    assert (verdict.outcome, verdict.usual, verdict.nights) == (outcome, 0.75, 3)


def test_too_few_nights_decide_nothing():
    """Two are not enough, nulls do not count, and the reason says it."""
    verdict = judged("m drop <= 0.1", 0.1, 0.9, 0.9, None)
    assert (verdict.outcome, verdict.nights) == ("undecided", 2)
    assert verdict.reason == "undecided: 2 nights to compare with, 3 are needed"


def test_a_usual_value_of_zero_has_no_share():
    """No change is none; any other is more than every percentage."""
    assert judged("m change <= 5%", 0, 0, 0, 0).outcome == "passed"
    assert judged("m rise <= 500%", 1, 0, 0, 0).outcome == "failed"
    assert judged("m drop <= 5%", 1, 0, 0, 0).outcome == "passed"


def test_intervals_are_far_apart_at_their_worse_ends():
    """The usual value counts from above, the night from below; a rise the other way round."""
    before = [(0.8, 0.9)] * 3
    drop, rise = judged("m drop <= 0.1", (0.79, 0.95), *before), judged("m rise <= 0.1", (0.79, 0.95), *before)
    assert (drop.usual, drop.value, drop.outcome) == (0.9, 0.79, "failed")
    assert (rise.usual, rise.value, rise.outcome) == (0.8, 0.95, "failed")


@given(
    st.sampled_from(["drop", "rise", "change"]),
    st.booleans(),
    st.integers(0, 16),
    st.integers(0, 16),
    st.lists(st.integers(1, 16), min_size=ENOUGH, max_size=7),
)
def test_distances_are_those_of_exact_fractions(how, share, limit, value, before):
    """Of sixteenths, in absolute terms and in per cent."""
    usual, night = Fraction(median(map(Fraction, before))) / 16, Fraction(value, 16)
    moved = {"drop": usual - night, "rise": night - usual, "change": abs(usual - night)}[how]
    bound = f"{limit}%" if share else f"{limit / 16}"
    within = moved <= (usual * limit / 100 if share else Fraction(limit, 16))
    if share and abs(moved - usual * limit / 100) < Fraction(1, 10**9):
        return  # the bound itself: a share is rounded
    verdict = judged(f"m {how} <= {bound}", float(night), *(n / 16 for n in before))
    assert (verdict.outcome == "passed") == within


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", "at its end", "the name of a metric"),
        ("m", "at its end", "a comparison"),
        ("m >= ", "at its end", "a number"),
        ("m = 3", "'= 3' (column 3)", "a comparison"),
        ("m >> 3", "'>> 3' (column 3)", "a comparison"),
        ("m >= x", "'x' (column 6)", "a number"),
        ("m >= nan", "'nan' (column 6)", "a number"),
        ("m drop >= 1", "'>= 1' (column 8)", "a drop is bounded from above"),
        ("m[] >= 1", "'[] >= 1' (column 2)", "a column in brackets"),
        ("a b >= 1", "'b >= 1' (column 3)", "drop, rise, change or a comparison"),
        ("m >= 1 or else", "'or else' (column 8)", "or undecided"),
        ("m >= 1kg", "'kg' (column 7)", "%, m, h, d or the end"),
        ("m >= 5%", "'%' (column 7)", "m has no share"),
        ("m >= 1 {c=*}", "'{c=*}' (column 8)", "slices stand before the comparison, after the column"),
        ("nulls <= 5%", "'<= 5%' (column 7)", "nulls are of a column"),
        ("rows[a] >= 5", "'[a] >= 5' (column 5)", "of the night"),
        ("age <= 36", "at its end", "an age has a unit"),
        ("rows <= 36h", "'h' (column 11)", "only an age has a unit"),
        ("missing drop <= 1", "'drop <= 1' (column 9)", "no usual value"),
        ("m[a] - >= 1", "'- >= 1' (column 6)", "the metric of another column"),
        ("m[a] - n[b] >= 1", "'- n[b] >= 1' (column 6)", "one metric of two columns"),
        ("rows - rows >= 1", "'- rows >= 1' (column 6)", "one metric of two columns"),
        ("m - m[b] >= 1", "'- m[b] >= 1' (column 3)", "names both columns"),
        ("m[a] - m >= 1", "'>= 1' (column 10)", "names both columns"),
        ("m[a] - m[a] >= 1", "'[a] >= 1' (column 9)", "a difference is of two columns"),
        ("m[a]{c=*} - m[b] >= 1", "'>= 1' (column 18)", "of the same slices"),
        ("m[a]{c=*} - m[b]{d=*} >= 1", "'{d=*} >= 1' (column 17)", "of the same slices"),
        ("m[a]{c=*}{c=*} >= 1", "'{c=*} >= 1' (column 10)", "of the same slices"),
        ("m[a] - m[b] drop <= 1", "'drop <= 1' (column 13)", "a difference has no usual value"),
        ("m >= 1 proved @95%", "'proved @95%' (column 8)", "proven, always, a level"),
        ("m >= 1 proven", "at its end", "proven needs a level"),
        ("m within 0.1", "'within 0.1' (column 3)", "within ±"),
        ("m within ±0 @95%", "'within ±0 @95%' (column 3)", "a bound above 0"),
        ("rows within ±1", "'within ±1' (column 6)", "takes a metric or a difference"),
        ("m >= 1 proven or undecided", "'or undecided' (column 15)", "proven needs a level"),
        ("m >= 1 @95", "'@95' (column 8)", "a level such as @95%"),
        ("m >= 1 @0.95%", "'@0.95%' (column 8)", "at least 50% and below 100%"),
        ("m >= 1 @100%", "'@100%' (column 8)", "at least 50% and below 100%"),
        ("m == 1 @95%", "'== 1 @95%' (column 3)", "held against a bound by"),
        ("rows >= 1 @95%", "'@95%' (column 11)", "no sampling interval"),
        ("m >= 1 @95% proven", "'proven' (column 13)", "or undecided"),
        ("m >= 1 always", "at its end", "always needs a level"),
        ("m >= 1 proven always @95%", "'proven always @95%' (column 8)", "a pass every night is another error"),
        ("m >= 1 @95% each", "'each' (column 13)", "each belongs to always"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_place(text, place, expected):
    """The message points at the place, and shows two that are rules."""
    refused = refuses(OptionError, r"is not a rule; at .*; write", Rule.read, text)
    assert place in refused
    assert expected in refused


@pytest.mark.parametrize(
    "value", ["DE", "a, b", "x{y}=1", "null", None, "", 7, True, "O'Brien", "'q'", " a", "it's, b"]
)
def test_rules_spell_slices_as_results_do(value):
    """A slice's name in a rule judges that slice, whatever its text holds."""
    named = {"name": value, "length=0,5": ">=5", "hour": 3}
    assert Rule.read(f"roc_auc[s]{slice_name(named)} >= 0.9").judges(named)
    assert not Rule.read(f"roc_auc[s]{slice_name(named)} >= 0.9").judges(named | {"length=0,5": "[0, 5)"})


@pytest.mark.parametrize(
    ("text", "value", "other"),
    [
        ("0", 0.0, 1.0),
        ("-0", 0.0, 5.0),
        ("1e3", 1000.0, 1e4),
        ("07", 7, 70),
        ("0.10", Decimal("0.1"), Decimal(1)),
        ("true", True, False),
        ("False", False, True),
    ],
)
def test_numbers_and_booleans_of_slices_are_spelled_freely(text, value, other):
    """CSV files write 0 for 0.0, and JSON true for True; a text is compared as it is written."""
    rule = Rule.read(f"roc_auc{{x={text}}} >= 0.9")
    assert rule.judges({"x": value})
    assert not any(map(rule.judges, ({"x": other}, {"x": None}, {"x": f" {text}"})))


def test_parts_of_rules():
    """Names of metrics may hold signs; spans of time are in hours, per cent is a fraction."""
    rule = Rule.read("tpr@fpr=0.001[score]>=0.5")
    assert (rule.metric, rule.of, rule.sign, rule.bound) == ("tpr@fpr=0.001", "score", ">=", 0.5)
    assert [Rule.read(f"age <= {span}").bound for span in ("36h", "2d", "30m")] == [36.0, 48.0, 0.5]
    rule = Rule.read(" nulls[a b]  <= 5%  or  undecided ", "few")
    assert (rule.name, rule.text, rule.of, rule.bound) == ("few", "nulls[a b] <= 5% or undecided", "a b", 0.05)
    assert (rule.lenient, rule.share, rule.labelled) == (True, True, False)


def sampled(value, low=None, high=None, reason=None, **more):
    """A value with its sampling interval."""
    made = replace(Scalar.certain("m", value), ci_lower=low, ci_upper=high, ci_reason=reason, ci_level=0.95)
    return replace(made, **more)


@pytest.mark.parametrize(
    ("rule", "ends", "outcome"),
    [
        ("m >= 0.5 @95%", (0.3, 0.6), "passed"),
        ("m >= 0.5 @95%", (0.3, 0.5), "passed"),
        ("m > 0.5 @95%", (0.3, 0.5), "failed"),
        ("m >= 0.5 @95%", (0.3, 0.49), "failed"),
        ("m <= 0.5 @95%", (0.5, 0.6), "passed"),
        ("m <= 0.5 @95%", (0.51, 0.6), "failed"),
        ("m >= 0.5 proven @95%", (0.5, 0.6), "passed"),
        ("m > 0.5 proven @95%", (0.5, 0.6), "failed"),
        ("m >= 0.5 proven @95%", (0.49, 0.9), "failed"),
        ("m <= 0.5 proven @95%", (0.1, 0.51), "failed"),
        ("m < 0.5 proven@95%", (0.1, 0.49), "passed"),
        ("m within ±0.5 @95%", (-0.4, 0.49), "passed"),
        ("m within +/-0.5 @95%", (-0.5, 0.4), "failed"),
    ],
)
def test_a_level_takes_one_end_of_the_interval(rule, ends, outcome):
    """Without proof the better end counts, with proof the worse one; the value itself decides nothing."""
    verdict = judge(Rule.read(rule), sampled(sum(ends) / 2, *ends), [])
    assert (verdict.outcome, verdict.value) == (outcome, sum(ends) / 2)


@given(st.lists(st.integers(-8, 8), min_size=3, max_size=4, unique=True), st.sampled_from([">=", ">", "<=", "<"]))
def test_proof_of_a_bound_is_failure_of_its_opposite(places, sign):
    """A rule is proven exactly where the opposite rule fails at the same level."""
    bound, (low, value, high) = places[0], sorted(places[-3:])
    opposite = {">=": "<", ">": "<=", "<=": ">", "<": ">="}[sign]
    proven = judge(Rule.read(f"m {sign} {bound} proven @95%"), sampled(value, low, high), [])
    other = judge(Rule.read(f"m {opposite} {bound} @95%"), sampled(value, low, high), [])
    assert (proven.outcome, other.outcome) in {("passed", "failed"), ("failed", "passed")}


def test_reasons_have_minus_signs():
    """A hyphen stays where it is part of a number's exponent."""
    usual = [Scalar.certain("m", value) for value in (-1e-7, -1e-7, -1e-7)]
    assert judge(Rule.read("m drop <= 0.1"), Scalar.certain("m", -0.5), usual).reason == (
        "0.5 below the usual −1e-07 (3 nights)"
    )
    assert judge(Rule.read("m >= 0 @95%"), sampled(-0.2, -0.3, -0.1)).reason == "[−0.3, −0.1] @95%"
    assert Rule.read("m >= 0 @95%").told(-0.2) == "−0.2"


def test_without_an_interval_a_level_decides_nothing():
    """The reason is given; a rule may say that this is enough. A null value fails all the same."""
    absent = sampled(0.9, reason="3.2 effective units")
    verdict = judge(Rule.read("m >= 0.5 @95%"), absent, [])
    assert (verdict.outcome, verdict.reason) == ("undecided", "undecided: no interval: 3.2 effective units")
    assert judge(Rule.read("m >= 0.5 proven @95% or undecided"), absent, []).outcome == "passed"
    assert judge(Rule.read("m >= 0.5 @95% or undecided"), result(None), []).outcome == "failed"


def test_what_is_uncertain_of_the_value_widens_its_interval():
    """A binned value within ± 0.01 has its sampling interval 0.01 wider on each side."""
    value = sampled(0.7, 0.6, 0.8, lower=0.69, upper=0.71, exact=False)
    assert judge(Rule.read("m >= 0.595 proven @95%"), value, []).outcome == "failed"
    assert judge(Rule.read("m >= 0.805 @95%"), value, []).outcome == "passed"


def test_differences_of_values():
    """They are as certain as both sides together, and null where one of them is."""
    one, other = replace(result(0.75), of="a"), replace(result((0.25, 0.5)), of="b")
    found = difference(one, other)
    assert (found.of, found.baseline, found.value, found.lower, found.upper) == ("a − b", "b", 0.375, 0.25, 0.5)
    rule = Rule.read("m[a] - m[b] >= 0.25")
    assert (rule.of, rule.than, judge(rule, found).outcome) == ("a", "b", "passed")
    absent = judge(rule, difference(one, replace(result(None), of="b")))
    assert (absent.outcome, absent.reason) == ("failed", "m is null: m of b: one class only")


def test_rules_with_levels_are_read_in_parts():
    """Spaces are free, minus signs may be typographic."""
    for text in ("m[a]-m[b]>=-0.002 proven@97.5%or undecided", "m[a]  −  m[b] >= -2e-3 proven @ 97.5 % or undecided"):
        rule = Rule.read(text)
        assert (rule.of, rule.than, rule.bound, rule.proven, rule.level) == ("a", "b", -0.002, True, 0.975)
        assert rule.lenient


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
    refuses(OptionError, "no sampling intervals were asked for", found.judge, "roc_auc[v1] >= 0.5 @95%")


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
    assert complete_options(rules, {"baseline": ("w",)}) == {"ci": 0.95, "baseline": ["w", "y"]}
    assert complete_options(rules[:1], {"ci": 0.5}) == {}
    assert complete_options(rules[2:], {}) == {"common_rows": True}


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
        refuses(OptionError, reason, found.judge, rule)


@pytest.mark.parametrize("slices", ["{source=*}", "{*}", "{source=psy}"])
def test_differences_by_slice_hold_for_all_judged_slices_together(slices: str) -> None:
    """Each is judged as its rows alone would be, at a level that is shared by all slices which the rule judges."""
    options = {"score": ["score_lr", "score_q"], "metrics": "roc_auc", "unit": "cluster_tight", "baseline": "score_lr"}
    found = evaluate(DATA, by="source", **options)
    names = {str(r.slice["source"]) for r in found.results if r.slice and slices.strip("{}") in ("*", "source=*")}
    names = names or {"psy"}
    rule = "roc_auc[score_q]{} - roc_auc[score_lr]{} >= {} proven @95%"
    level = 1 - 0.05 / len(names)
    alone = [
        evaluate(DATA, where=f"source = '{name}'", ci=level, **options).difference("roc_auc", "score_lr", "score_q")
        for name in names
    ]
    worst = min(one.ci_lower for one in alone)
    (judged,) = found.judge(rule.format(slices, slices, worst - 1e-9)).judgements
    assert judged.outcome == "passed"
    assert judged.ci_level == pytest.approx(level)
    assert (judged.ci_lower, judged.ci_upper) in [(one.ci_lower, one.ci_upper) for one in alone]
    (failed,) = found.judge(rule.format(slices, slices, worst + 1e-9)).judgements
    assert failed.outcome == "failed"
    plain = found.judge(f"roc_auc[score_q]{slices} - roc_auc[score_lr]{slices} >= 0").judgements[0]
    assert plain.value == min(one.value for one in alone)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("aul drop <= 0.1", "compares nights"),
        ("age <= 36h", "speaks of age"),
        ("nulls[label] <= 5%", "speaks of nulls"),
    ],
)
def test_rules_of_nights_are_for_stores(found, rule, expected):
    """The message says where they belong."""
    refuses(OptionError, f"{expected}.*streameval check", found.judge, rule)
