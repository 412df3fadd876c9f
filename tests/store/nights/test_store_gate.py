"""The gate: every night is judged, a failure stays one, and what is usual is told from what is not."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from files import put
from nightly import FEW, NIGHTS, land
from processes import run
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import DataError, OptionError, StoreError
from streameval.results import Judgement
from streameval.store.files.location import Location
from streameval.store.nights import judgements
from streameval.store.nights.windows import RuleNights

FLOOR = "roc_auc[score_lr] >= 0.95"


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The first eight nights, judged by one rule."""
    folder = tmp_path_factory.mktemp("begun")
    for name in NIGHTS[:8]:
        land(name, folder / "data")
    made = Store(folder / "store", threads=1)
    made.update(folder / "data", **FEW)
    assert made.check(FLOOR).passed
    return folder


@pytest.fixture
def data(tmp_path):
    """Where nights land."""
    return tmp_path / "data"


@pytest.fixture
def store(begun, tmp_path):
    """A copy of the nights and their store."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    return Store(tmp_path / "store", threads=1)


def rewritten(night, data, change):
    """A night with a changed table."""
    path = land(night, data) / "part-0.parquet"
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)
    return path.parent


def broken(night, data):
    """A night with a reversed score."""
    return rewritten(
        night, data, lambda t: set_column(t, "score_lr", pc.subtract(pa.scalar(1, pa.float32()), t["score_lr"]))
    )


def set_column(table, name, values):
    """The table with other values in a column."""
    return table.set_column(table.column_names.index(name), name, values)


def outcomes(check):
    """Outcome by night and rule."""
    return {(one.partition, one.rule): one.outcome for one in check.judgements}


def test_a_broken_night_in_a_backfill_fails_and_keeps_failing(store, data):
    """Five nights at once, the third broken: found, and a retry does not open the gate, nor does a good night."""
    for name in NIGHTS[8:13]:
        (broken if name == NIGHTS[10] else land)(name, data)
    store.update(data)
    for expected in (5, 0, 0):
        found = store.check(FLOOR)
        assert (found.passed, found.failing, found.judged) == (False, (NIGHTS[10],), expected)
    store.update(land(NIGHTS[13], data))
    found = store.check(FLOOR)
    assert (found.judged, found.failing) == (1, (NIGHTS[10],))
    assert store.check(FLOOR, NIGHTS[13]).passed  # the status speaks of that night alone
    assert not store.check(FLOOR, [NIGHTS[10], NIGHTS[13]]).passed
    store.replace(land(NIGHTS[10], data))
    found = store.check(FLOOR)
    assert (found.passed, found.judged) == (True, 1)


def test_only_recorded_failures_are_accepted(store, data):
    """Of one rule or of all, with a reason; not those of a later fold, and not of a night that is good."""
    other = "roc_auc[score_lr] >= 0.9"
    store.check(other)
    store.update(broken(NIGHTS[8], data))
    assert len(store.check([FLOOR, other]).judgements) == 2
    accepted = store.accept(NIGHTS[8], "the model was swapped", rule=FLOOR)
    assert [(one.rule, one.accepted) for one in accepted] == [(FLOOR, "the model was swapped")]
    assert store.check(FLOOR).passed
    assert not store.check([FLOOR, other]).passed
    with pytest.raises(DataError, match=r"no failure of roc_auc\[score_lr\] is recorded; it fails "):
        store.accept(NIGHTS[8], "known", rule="roc_auc[score_lr]")
    store.accept(NIGHTS[8], "known")
    assert store.check([FLOOR, other]).passed
    refuses(DataError, "night=2026-01-09: no failure is recorded; check first", store.accept, NIGHTS[8], "known")
    refuses(OptionError, "say why", store.accept, NIGHTS[8], " ")
    store.replace(data / NIGHTS[8])  # as it was: another fold
    assert not store.check([FLOOR, other]).passed


def test_a_new_rule_judges_the_newest_night_and_what_comes_later(store, data):
    """`since` reaches back, `again` repeats judgements; a rule whose text changed is new to the newest night."""
    high = "roc_auc[score_lr] >= 0.999"
    aucs = {name: evaluate(data / name, **FEW).value("roc_auc") for name in NIGHTS[:8]}
    first = store.check({"high": high})
    assert [one.partition for one in first.judgements] == [NIGHTS[7]]
    found = store.check({"high": high}, since="2026-01-03")
    assert {one.partition: one.value for one in found.judgements if one.partition > NIGHTS[1]} == {
        name: aucs[name] for name in NIGHTS[2:8] if aucs[name] < 0.999 or name == NIGHTS[7]
    } | {one.partition: one.value for one in found.judgements}
    assert found.judged == 5  # the newest is judged already
    assert store.check({"high": high}).failing == tuple(name for name in NIGHTS[2:8] if aucs[name] < 0.999)
    again = store.check({"high": "roc_auc[score_lr] >= 0"}, again=True)
    assert (again.passed, again.judged) == (True, 6)
    changed = store.check({"high": high})
    assert changed.judged == 1
    assert changed.failing == ((NIGHTS[7],) if aucs[NIGHTS[7]] < 0.999 else ())


def test_the_usual_value_is_the_median_of_seven_good_nights(store, data):
    """A failed night is left out for ten nights; an accepted failure begins a new usual value, itself included."""
    rules = ["aul drop <= 5%", "roc_auc[score_lr] >= 0.999"]
    store.update(broken(NIGHTS[8], data))
    auls = [evaluate(data / name, **FEW).value("aul") for name in NIGHTS[:9]]
    [aul, _] = store.check(rules).judgements
    assert (aul.usual, aul.nights, aul.value) == (median(auls[1:8]), 7, auls[8])
    rule = "roc_auc[score_lr] drop <= 0.1"
    assert not store.check(rule).passed
    store.update(land(NIGHTS[9], data))
    aucs = [evaluate(data / name, **FEW).value("roc_auc") for name in NIGHTS[1:8]]
    found = store.check(rule, NIGHTS[9]).judgements[0]
    assert (found.usual, found.nights, found.outcome) == (median(aucs), 7, "passed")
    store.accept(NIGHTS[8], "a new model", rule)
    store.update(land(NIGHTS[10], data))
    found = store.check(rule, NIGHTS[10]).judgements[0]
    assert (found.nights, found.outcome) == (2, "undecided")
    assert found.reason.endswith("3 are needed; judging resumes on 2026-01-12 if nights are daily")


@pytest.mark.parametrize("accepted", [(), (4,)])
def test_which_nights_a_rule_takes(accepted):
    """The table: failed nights are usual after ten nights and in windows at once; an accepted one begins anew."""
    entries = [SimpleNamespace(partition=f"night={i}", incomplete=i == 9) for i in range(16)]
    known = {i: Judgement("r", "r", "failed" if i in (4, 8, 12) else "passed", 0.0, "") for i in range(1, 15)}
    known |= {0: Judgement("r", "r", "earlier", 0.0, "")}
    known |= {i: replace(known[i], accepted="known") for i in accepted}
    nights = RuleNights(entries, lambda entry: known.get(entries.index(entry)))
    begin = 4 if accepted else 0
    usual = [entries.index(entry) for entry in nights.usual(15)]
    assert usual == [i for i in range(14, begin - 1, -1) if i not in (8, 9, 12)]
    taken = nights.in_windows(15)
    assert [i for i, one in enumerate(taken) if one] == list(range(5 if accepted else 1, 16))
    assert nights.accepted(15) == [*accepted]


def test_a_history_has_no_windows_of_a_difference(tmp_path):
    """Rules on the metric of one column and of all columns have windows, of which the last one that judged counts."""
    night = SimpleNamespace(partition="n", fingerprint="", folded="", states=(), state=lambda *_: None)
    log = judgements.Judgements(Location.of(tmp_path), "n")
    digest = judgements.digests(night)["", ""]
    rules = {"a": "roc_auc[t] - roc_auc[s] >= 0", "b": "roc_auc[t] >= 0.5", "c": "roc_auc >= 0.6"}
    for hour, (name, text) in enumerate(rules.items()):
        one = Judgement(name, text, "passed", 0.1, "", partition="n", digest=digest, windows=((1.0, 0.1, 0.2, 0.3),))
        log.add(replace(one, judged=datetime(2026, 1, 1, hour, tzinfo=UTC)))
        assert [one.rule for one in log.windows([night], "roc_auc", "t")] == [name] * (name != "a")


def test_rules_that_are_read_every_night(tmp_path):
    """A year's level, its share, windows, what would have been seen, and the cache of replicates."""
    rng, folder = np.random.default_rng(0), tmp_path / "data"
    for day in range(1, 31):
        unit = rng.integers(0, 300, 600)
        label = unit % 3 == 0
        table = {"label": label, "s": rng.normal(label * (2.5 if day < 30 else 0.0)), "unit": unit, "c": unit % 2}
        put(folder / f"night=2026-01-{day:02}" / "a.parquet", table)
    store = Store(tmp_path / "store", threads=1)
    store.update(folder, score="s", unit="unit", by="c", metrics="roc_auc")
    rules = {"all": "roc_auc >= 0.9 always @95%", "each": "roc_auc{c=*} >= 0.9 always @95%"}
    rules |= {"drop": "roc_auc drop <= 0.05 always @95% each", "often": "roc_auc drop <= 0.05 @95%"}
    found = {(one.partition[-2:], one.rule): one for one in store.check(rules, since="2026-01-20").judgements}
    assert {rule: found["30", rule].outcome for rule in rules} == dict.fromkeys(rules, "failed")
    store.accept("night=2026-01-30", "seen")
    assert found["30", "all"].reason.split("; ")[1] == "level for 2 rules and 1 slice"
    assert re.fullmatch(r"0\.\d+ \[−∞, 0\.\d+\] in one night, bound 0\.9", found["30", "all"].reason.split("; ")[0])
    assert found["30", "each"].reason.startswith("2 of 2 slices")
    again = store.check(rules, "night=2026-01-29", again=True)
    shown = {one.rule: one.reason for one in again.judgements}
    assert shown["all"].startswith("would have shown a fall of 0.")
    assert " in one night, 0." in shown["all"]
    assert again.notes[0] == "3 rules read every night: a false alarm within a year has a chance of at most 10 %"
    (_, night, end, seen), week = found["30", "all"].windows  # nothing of 28 nights, of which 11 are judged
    assert (night < end < 0.9 > seen, week[0], found["30", "each"].windows) == (True, 7, ())
    history = Store(tmp_path / "store", threads=1).history("roc_auc", cumulative=False)
    lines = {str(line.get_label()): line for line in history.plot().lines}
    assert {"per night", "over 7 nights", "seen in one night", "seen over 7 nights"} <= set(lines)
    assert lines["seen in one night"].get_ydata()[-1] == seen
    assert "seen over 7 nights" in history.to_html()
    assert "seen over 7 nights" in again.to_html()
    files = list((tmp_path / "store" / "history" / "replicates").glob("*.arrow"))
    assert len(files) == 30
    files[0].write_bytes(b"damaged")
    assert {one.rule: one.reason for one in store.check(rules, "night=2026-01-29", again=True).judgements} == shown
    fewer = store.check({"all": rules["all"]}, "night=2026-01-29", again=True)
    assert fewer.judgements[0].reason.endswith("level for 1 rule and 1 slice")


def test_too_few_nights_are_undecided_until_accepted(data, tmp_path):
    """Status 3 and the reason, unless the rule says `or undecided`; judged again when earlier nights arrive."""
    store, rule = Store(tmp_path / "store"), "aul drop <= 0.5"
    store.update(land(NIGHTS[3], data), **FEW)
    found = store.check(rule)
    assert (found.passed, outcomes(found)) == (False, {(NIGHTS[3], rule): "undecided"})
    assert store.check(f"{rule} or undecided").passed
    for name in NIGHTS[:3]:
        store.update(land(name, data))
    found = store.check(rule)
    assert outcomes(found)[NIGHTS[3], rule] == "passed"
    assert found.failing == tuple(NIGHTS[:3])
    store.accept(NIGHTS[:3], "the first nights")
    assert store.check(rule).passed


def test_rules_on_what_is_there(store, data):
    """Rows, positives and nulls of columns, from the ledger."""
    table = pq.read_table(data / NIGHTS[7], partitioning=None)
    rules = ["rows >= 1", "positives >= 1", "positives >= 1%", "nulls[label] <= 5%", "nulls[score_lr] == 0",
             "nulls[cluster_loose] == 0", "rows drop <= 90%", "positives change <= 95%"]  # fmt: skip
    found = store.check(rules)
    positives = pc.sum(table["label"]).as_py()
    values = [len(table), positives, positives / len(table), 0, 0, 0, len(table), positives]
    assert [one.value for one in found.judgements] == values
    assert found.passed
    store.update(rewritten(NIGHTS[8], data, lambda table: table.slice(0, 30)))
    found = store.check(rules)
    assert [rule for (_, rule), outcome in outcomes(found).items() if outcome == "failed"] == rules[6:]
    refuses(OptionError, r"reads no column .labe.; did you mean .label.", store.check, "nulls[labe] == 0")
    refuses(OptionError, r"no metric is named .nothing.", store.check, "nothing >= 1")


def test_nulls_are_counted_by_column(data, tmp_path):
    """Null labels, null and NaN scores, null ids; in per cent of the rows."""

    def holes(table):
        label = table["label"].to_pylist()
        label[:6] = [None] * 6
        score = table["score_lr"].to_pylist()
        score[10:13] = [None, None, float("nan")]
        ids = table["cluster_loose"].to_pylist()
        ids[20:22] = [None] * 2
        table = set_column(table, "label", pa.array(label, pa.int8()))
        table = set_column(table, "score_lr", pa.array(score, pa.float32()))
        return set_column(table, "cluster_loose", pa.array(ids, pa.int64()))

    store = Store(tmp_path / "store")
    store.update(rewritten(NIGHTS[0], data, holes), **FEW, nan="drop", nulls="drop", unlabelled="drop")
    rows = store.partitions()[0].rows
    rules = ["nulls[label] == 6", "nulls[score_lr] == 3", "nulls[cluster_loose] == 2", "nulls[label] <= 0.5%"]
    found = store.check(rules)
    assert [one.value for one in found.judgements] == [6, 3, 2, 6 / rows]
    assert [one.outcome for one in found.judgements] == ["passed"] * 3 + ["failed"]


def test_a_series_is_daily_and_fresh(data, tmp_path):
    """Days without a night are counted up to the newest, and named; the age is that of the newest night."""
    store = Store(tmp_path / "store")
    for name in (NIGHTS[0], NIGHTS[1], NIGHTS[4]):
        land(name, data)
    store.update(data, **FEW)
    found = store.check("missing == 0")
    assert (found.passed, found.judgements[0].value) == (False, 2)
    assert found.judgements[0].reason == "no 2026-01-03, 2026-01-04"
    store.update(land(NIGHTS[2], data))
    assert store.check("missing == 0").judgements[0].value == 1
    store.accept(NIGHTS[4], "there was no mail that day")
    assert store.check("missing == 0").passed
    store.update(land(NIGHTS[5], data))
    assert store.check("missing == 0").passed
    store.update(land(NIGHTS[8], data))
    assert store.check("missing == 0").judgements[0].value == 2
    found = store.check("age <= 36h").judgements[0]
    age = datetime.now(UTC) - datetime(2026, 1, 10, tzinfo=UTC)
    assert found.outcome == "failed"
    assert found.value == pytest.approx(age / timedelta(hours=1), abs=0.1)


def test_young_labels_are_pending_and_rows_are_not(data, tmp_path):
    """A night that ended yesterday waits for its labels; when it is mature it is judged."""
    land(NIGHTS[0], data)
    today = f"night={datetime.now(UTC).date() - timedelta(days=1)}"
    shutil.copytree(data / NIGHTS[0], data / today)
    store, rules = Store(tmp_path / "store"), ["roc_auc >= 2", "positives >= 1e9", "rows >= 1", "nulls[label] == 0"]
    store.update(data, **FEW)
    found = store.check(rules, mature="3d")
    assert found.passed
    assert [outcomes(found)[today, rule] for rule in rules] == ["pending", "pending", "passed", "pending"]
    assert "mature at" in found.judgements[0].reason
    shown = run("check", store.name, "--rule", rules[0], "--mature", "3d").stdout.splitlines()[-1]
    assert shown == f"nothing new to judge in 1 night up to {today}; labels of 1 night are not mature"
    assert store.check("age <= 36h").passed
    found = store.check(rules)
    assert [outcomes(found)[today, rule] for rule in rules[:2]] == ["failed"] * 2


def test_judgements_outlive_everything_that_is_derived(store, data, tmp_path, monkeypatch):
    """Also when the table is rewritten as one file; a damaged one is refused by name."""
    monkeypatch.setattr(judgements, "FILES", 3)
    for name in NIGHTS[8:13]:
        store.update((broken if name == NIGHTS[9] else land)(name, data))
        store.check(FLOOR)
    shutil.rmtree(tmp_path / "store" / "history")
    store.vacuum(grace="0s")
    found = Store(tmp_path / "store").check(FLOOR)
    assert (found.judged, found.failing) == (0, (NIGHTS[9],))
    files = sorted((tmp_path / "store" / "checks").glob("*.parquet"))
    assert len(files) <= 3
    files[0].write_bytes(b"nothing")
    refuses(StoreError, r"checks: cannot be read: .*restore it from a copy", Store(tmp_path / "store").check, FLOOR)


def test_the_command_line_of_a_scheduler(store, data, tmp_path):
    """Rules by name from a file, options from another; one line a rule; status 3 for what fails or is absent."""
    path = tmp_path / "store"
    rules, config = tmp_path / "rules.toml", tmp_path / "check.toml"
    rules.write_text(f'auc_floor = "{FLOOR}"\naul_drop = "aul[cluster_loose] drop <= 0.3"\n')
    config.write_text(f'rules = "{rules}"\n')
    good = run("check", path, "--config", config, "--partition", NIGHTS[7])
    assert (good.exit_code, good.stderr) == (0, "")
    lines = good.stdout.splitlines()
    assert lines[0].split() == ["ok", "auc_floor", *FLOOR.split(), f"{store.evaluate(last=1).value('roc_auc'):.6g}"]
    assert lines[1].startswith("ok  aul_drop   aul[cluster_loose] drop <= 0.3  0.")
    assert lines[1].endswith("(7 nights)")
    store.update(broken(NIGHTS[8], data))
    bad = run("check", path, "--rules", rules)
    assert bad.exit_code == 3
    assert f"FAIL  {NIGHTS[8]}  auc_floor" in bad.stdout
    retried = run("check", path, "--rules", rules, "--json", "-")
    told = json.loads(retried.stdout)
    assert (retried.exit_code, told["failing"], told["passed"]) == (3, [NIGHTS[8]], False)
    assert f"FAIL  {NIGHTS[8]}  auc_floor" in retried.stderr
    done = run("check", path, "--accept", NIGHTS[8], "--rule", "auc_floor", "--reason", "known")
    assert (done.exit_code, done.stdout) == (0, f"accepted {NIGHTS[8]}: auc_floor\n"), done.stderr
    assert run("check", path, "--rules", rules).exit_code == 0
    absent = run("check", path, "--rules", rules, "--partition", "night=2026-01-20")
    assert (absent.exit_code, "the store has no such night; it has night=" in absent.stdout) == (3, True)
    meant = run("check", path, "--rules", rules, "--partition", "2026-01-02")
    assert (meant.exit_code, f"no such night; did you mean {NIGHTS[1]}?" in meant.stdout) == (3, True)
    for words, said in (
        (["--accept", NIGHTS[8]], "--reason"),
        (["--reason", "x"], "--accept"),
        (["--accept", NIGHTS[8], "--reason", "x", "--again"], "--again"),
        (["--accept", NIGHTS[8], "--reason", "x", "--plan"], "--plan"),
        (["--rules", tmp_path / "none.toml"], "cannot be read"),
        (["--rule", "roc_auc >>"], "column 9"),
        (["--mature", "soon", "--rule", FLOOR], "--mature 'soon' is not a span of time"),
        ([], "name a rule"),
    ):
        done = run("check", path, *words)
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    rules.write_text("auc = 1\n")
    assert "auc must be a rule in quotes" in run("check", path, "--rules", rules).stderr
    rules.write_text('auc = "roc_auc >>"\n')
    assert f"--rules {rules}: auc: 'roc_auc >>' is not a rule" in run("check", path, "--rules", rules).stderr


def test_undecided_nights_are_not_called_failing(data, tmp_path):
    """`check` and `diagnose` say that nights are undecided, and what lets them pass."""
    made = Store(tmp_path / "st")
    made.update([land(name, data) for name in NIGHTS[:2]], score="score_lr")
    rule = "roc_auc[score_lr] drop <= 0.1"
    done = run("check", made.name, "--rule", rule, "--since", "2000-01-01")
    assert done.exit_code == 3
    assert done.stdout.splitlines()[-3].startswith(f"2 nights are undecided ({NIGHTS[0]}, {NIGHTS[1]}): ")
    assert done.stdout.splitlines()[-2].endswith("a rule that ends in 'or undecided' lets them pass")
    one, _ = made.diagnose()
    assert (one.fails, one.undecided, one.to_dict()["undecided"]) == ((), (rule,), [rule])
    assert (made.info().failing, made.info().undecided) == ({}, dict.fromkeys(NIGHTS[:2], (rule,)))
    assert f"undecided   {NIGHTS[0]} ({rule}), " in run("info", made.name).stdout
    assert made.history("roc_auc").failing == ()
    shown = run("diagnose", made.name).stdout.splitlines()
    assert shown[0] == f"{NIGHTS[0]}; undecided: {rule}; compared with 0 nights"
    assert shown[1].startswith(f"undecided  {rule}  0.")
    assert shown[-1].endswith("; a rule that ends in 'or undecided' lets such nights pass")
    for name in NIGHTS[2:5]:
        made.update(land(name, data))
    assert [one.nights for one in made.diagnose(NIGHTS[4])] == [4]  # nothing is wrong with an undecided night


def test_the_newest_of_several_failing_nights_is_explained(store, data):
    """`check` says which night is unusual, and names all that fail."""
    for name in NIGHTS[8:10]:
        store.update(broken(name, data))
    lines = run("check", store.name, "--rule", FLOOR).stdout.splitlines()
    assert lines[-2].startswith(f"2 nights fail ({NIGHTS[8]}, {NIGHTS[9]}): streameval diagnose ")
    assert lines[-1] == f"next: streameval diagnose {store.name} --partition {NIGHTS[9]}"


def test_a_check_that_finds_what_is_known_writes_nothing(store):
    """Rules on the store as it is now, and rules that cannot be decided, are kept once and not at every check."""
    rules = ["missing == 0", "age <= 1000000h", "rows drop <= 1% or undecided", FLOOR]
    first = store.check(rules)
    log = store._context.judgements()
    assert first.judged == 3
    again = store.check(rules)
    assert (again.judged, again.passed) == (0, True)
    assert store._context.judgements()._opened[0].version() == log._opened[0].version()


def test_a_null_value_fails_with_its_reason(store, data):
    """Such as that of a night without positives."""
    store.update(rewritten(NIGHTS[8], data, lambda t: t.filter(pc.equal(t["label"], 0))))
    [one] = store.check(FLOOR).judgements
    assert one.outcome == "failed"
    assert one.reason.startswith("roc_auc is null: ")
    assert one.to_dict()["value"] is None


def test_what_was_true_of_the_store_does_not_stay_with_a_night(store, data):
    """A gap that is filled and a night that was late fail no more, wherever failing nights are listed."""
    store.update(land(NIGHTS[9], data))
    assert store.check(["missing == 0", "age <= 36h"]).failing == (NIGHTS[9],)
    assert store.info().failing == {NIGHTS[9]: ("missing == 0", "age <= 36h")}
    shown = run("check", store.name, "--rule", "age <= 36h").stdout.splitlines()[0]
    assert shown.endswith(f"{store.check('age <= 36h').judgements[0].value:.6g} h")
    for name in (NIGHTS[8], NIGHTS[10]):
        store.update(land(name, data))
    assert store.check(["missing == 0", FLOOR]).passed
    assert (store.info().failing, store.diagnose(), store.history("roc_auc").failing) == ({}, (), ())


def test_a_difference_of_columns_is_judged_and_kept(data, tmp_path):
    """It is that of the two values; folding one night again has it judged again; a level is refused by name."""
    for name in NIGHTS[:3]:
        land(name, data)
    made = Store(tmp_path / "differences", threads=1)
    made.update(data, **FEW | {"score": ["score_lr", "score_nb"]})
    rule = "roc_auc[score_lr] - roc_auc[score_nb] >= 0.9"
    found = made.check(rule)
    alone = [made.evaluate(NIGHTS[2]).value("roc_auc", of) for of in ("score_lr", "score_nb")]
    assert (found.failing, found.judgements[-1].value) == ((NIGHTS[2],), alone[0] - alone[1])
    assert not made.check(rule).judged
    assert made.info().to_dict()["failing"] == {NIGHTS[2]: (rule,)}
    made.accept(NIGHTS[2], "known")
    assert made.check(rule).passed
    refuses(OptionError, r"keeps no blocks of units.*add --unit", made.check, "roc_auc[score_lr] >= 0.9 @95%")


def nights_of_units(folder, days=9, **columns):
    """Nights of 400 rows in 200 units, each with further columns made from the units."""
    rng = np.random.default_rng(0)
    for day in range(1, days + 1):
        unit = rng.integers(0, 200, 400)
        label = (unit % 3 == 0) & (unit >= 60)
        table = {"label": label, "s": rng.normal(label * 2.5), "unit": unit}
        table |= {name: change(unit) for name, change in columns.items()}
        put(folder / f"night=2026-01-{day:02}" / "a.parquet", table)
    return folder


@pytest.mark.parametrize("ending", ["drop <= 0.5 @95%", ">= 0.1 always @95%"])
def test_the_error_of_a_draw_is_not_left_out(tmp_path, ending):
    """A value of a sample has no replicates that hold the error of the draw: undecided."""
    store = Store(tmp_path / "store", threads=1)
    store.update(nights_of_units(tmp_path / "data"), score="s", unit="unit", approx_agc=True, sample=0.5)
    found = store.check(f"agc_approx[s] {ending}").judgements[-1]
    assert found.outcome == "undecided"
    assert "of a sample" in found.reason


def test_replicates_are_those_of_the_present_states(tmp_path):
    """Scores that became histograms have other replicates, though their files and folds are the same."""
    store, rule = Store(tmp_path / "store", threads=1), "roc_auc >= 0.5 always @95%"
    store.update(nights_of_units(tmp_path / "data"), score="s", unit="unit")
    cached = tmp_path / "store" / "history" / "replicates"
    store.check(rule)
    before = {path.name for path in cached.iterdir()}
    store.vacuum(keep="3d")
    store.check(rule, again=True)
    after = {path.name for path in cached.iterdir()}
    assert (len(before), len(after), len(before & after)) == (9, 9, 3)


def test_slices_are_judged_on_their_own_scale_whatever_their_column_is_called(tmp_path):
    """The first slice has one class, so no scale; columns are called as those of the cache."""
    columns = {"scale": lambda unit: np.where(unit < 60, 0, 1 + unit % 2), "problem": lambda unit: unit % 2}
    store = Store(tmp_path / "store", threads=1)
    store.update(nights_of_units(tmp_path / "data", **columns), score="s", unit="unit", by="scale,problem")
    rules = [f"average_precision{{scale=*,problem=*}} {end} @95%" for end in (">= 0.01 always", "drop <= 0.9 always")]
    store.check(rules)
    first, second = store.check(rules, "night=2026-01-09", again=True).judgements
    assert first.outcome == "passed", first.reason
    assert re.search(r"worst of 2 slices: (\{.*\}); 2 slices without a value; \1: would have shown", first.reason)
    assert "of 2 slices: {scale=" in second.reason


def test_always_counts_one_night_a_day(tmp_path):
    """Several partitions of one day would be pooled as nights of the same window."""
    data = nights_of_units(tmp_path / "data", 1)
    for country in ("DE", "FR"):
        (data / "night=2026-01-02" / f"country={country}").mkdir(parents=True)
        shutil.copy(data / "night=2026-01-01" / "a.parquet", data / "night=2026-01-02" / f"country={country}")
    store = Store(tmp_path / "store", threads=1)
    store.update(data, score="s", unit="unit")
    with pytest.raises(
        OptionError, match=r"country=DE, .*country=FR are of one day, and always counts one night a day"
    ):
        store.check("roc_auc >= 0.5 always @95%")


def test_a_change_spends_half_its_level_on_each_side(tmp_path):
    """Its lower end at a bound is that of a drop that shares its level with another rule."""
    store = Store(tmp_path / "store", threads=1)
    store.update(nights_of_units(tmp_path / "data", 30), score="s", unit="unit")
    rules = [f"roc_auc {how} <= 0.5 always @95%" for how in ("drop", "rise", "change")]
    drop, rise = store.check(rules[:2]).judgements
    [change] = store.check([f"{rules[2]} each"]).judgements
    drop, rise, change = (
        re.search(r"is at least (\S+)", one.reason)[1].replace("−", "-") for one in (drop, rise, change)
    )
    assert float(change) == max(float(drop), float(rise))


def test_a_change_of_the_shared_level_is_named(tmp_path):
    """Against the last night that was judged by such rules, whatever the night between gave."""
    data, rules = nights_of_units(tmp_path / "data", 10), [f"roc_auc >= {bound} always @95%" for bound in (0.5, 0.6)]
    late = [data / f"night=2026-01-{day}" for day in ("09", "10")]
    kept = [shutil.move(path, tmp_path / path.name) for path in late]
    store = Store(tmp_path / "store", threads=1)
    store.update(data, score="s", unit="unit")
    assert len(store.check(rules).notes) == 1
    for path in kept:
        store.update(shutil.move(path, data / path.name))
    notes = store.check(rules[0], "night=2026-01-10").notes
    assert notes[1:] == ("the error of a year is shared by 1 rule, on night=2026-01-08 by 2",)


def unlabelled(night, data):
    """A night with a null label."""
    return rewritten(night, data, lambda t: set_column(t, "label", pa.array([None, *t["label"].to_pylist()[1:]])))


def test_a_night_that_cannot_be_folded_closes_the_gate(tmp_path, data):
    """New or changed, named, and missing; until it is folded or accepted."""
    rules = [FLOOR, "missing == 0", "nulls[label] == 0"]
    store = Store(tmp_path / "store", threads=1)
    for night in NIGHTS[:3]:
        land(night, data)
    store.update(data, **FEW)
    for night in NIGHTS[2:5]:
        unlabelled(night, data)
    refuses(DataError, "3 partitions cannot be folded", store.update, data)
    (tmp_path / "late.csv").write_text("label,score_lr")
    with pytest.raises(DataError, match=r"late\.csv: cannot be read: it is a CSV file"):
        store.update(tmp_path / "late.csv")  # leaves no failure behind
    assert store.info().failing == dict.fromkeys(NIGHTS[2:5], ("folded",))
    assert "replace or remove the night" in run("diagnose", store.name).stdout
    failed = {(one.partition, one.rule): one.reason for one in store.check(rules).judgements if not one.passed}
    assert {*failed} == {*((night, "folded") for night in NIGHTS[2:5]), (NIGHTS[2], "missing == 0")}
    assert "has nulls" in failed[NIGHTS[4], "folded"]
    assert failed[NIGHTS[2], "missing == 0"] == "no 2026-01-04, 2026-01-05"
    shown = run("check", store.name, "--rule", FLOOR)
    assert shown.exit_code == 3
    [line] = (line for line in shown.stdout.splitlines() if "cannot be folded" in line)
    assert f"{NIGHTS[2]} and 2 more" in line
    assert "add changes them once" in line
    assert f"DATA, or streameval check {store.name} --accept {NIGHTS[4]} --reason '…'" in shown.stdout
    for night in NIGHTS[2:4]:
        (land(night, data) / "part-0.parquet").touch()
    shutil.rmtree(data / NIGHTS[4])
    store.update(data)
    assert store.info().failing == {NIGHTS[4]: ("folded",)}
    assert [one.partition for one in store.check(FLOOR).judgements if not one.passed] == [NIGHTS[4]]
    store.accept(NIGHTS[4], "was empty")
    assert store.check(rules).passed


def test_nulls_of_immature_labels_are_pending(store):
    """As every rule on labels; those of scores are not."""
    check = store.check(["nulls[label] == 0", "nulls[score_lr] == 0"], mature="36500d")
    assert [one.outcome for one in check.judgements] == ["pending", "passed"]
