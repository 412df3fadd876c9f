"""What a store says of itself."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from nightly import DATA, NIGHTS

from streameval import Store
from streameval.cli import main
from streameval.errors import StoreError


def run(*words):
    """Run a command."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_store_says_what_it_holds_and_what_fails(tmp_path):
    """Nights, rows, columns, policies, failing nights, bytes; the same in JSON."""
    store = Store(tmp_path / "store")
    store.update([DATA / name for name in NIGHTS[:3]], score="score_lr", cluster="cluster_loose", nan="drop")
    found = store.info()
    entries = store.partitions()
    assert (found.nights, found.first, found.last) == (3, NIGHTS[0], NIGHTS[2])
    assert found.rows == sum(entry.rows for entry in entries)
    assert found.bytes == sum(state.bytes for entry in entries for state in entry.states)
    assert found.columns == {"label": "label", "score": ["score_lr"], "cluster": ["cluster_loose"]}
    assert (found.policies, found.failing, found.damaged) == ({"nan": "drop"}, {}, None)
    store.check("roc_auc >= 2")
    told = json.loads(run("info", tmp_path / "store", "--json", "-").stdout)
    assert told["failing"] == {NIGHTS[2]: ["roc_auc >= 2"]}
    assert f"failing     {NIGHTS[2]} (roc_auc >= 2)" in run("info", tmp_path / "store").stdout
    out = tmp_path / "info.csv"
    assert run("info", tmp_path / "store", "--versions", "--out", out).exit_code == 0
    assert out.read_text().splitlines()[-1].startswith('"version 0","20')
    with pytest.raises(StoreError, match="there is no store"):
        Store(tmp_path / "none").info()


def test_policies_by_column_are_told_in_words(tmp_path):
    """As the command line takes them; JSON has the options."""
    store = Store(tmp_path / "store")
    store.update(DATA / NIGHTS[0], score=["score_lr", "score_nb"], nan={"score_nb": "half"}, metrics=["ks", "roc_auc"])
    told = dict(store.info().lines())
    assert (told["nan"], told["metrics"]) == ("score_nb=half, others error", "ks, roc_auc")
    assert store.info().to_dict()["policies"]["nan"] == {"score_nb": "half", "*": "error"}


def test_verifying_names_every_damaged_file_and_the_remedy(tmp_path):
    """Status 1; folding the night again, as it says, mends it."""
    store = Store(tmp_path / "store")
    store.update([DATA / name for name in NIGHTS[:2]], score="score_lr")
    good = run("info", tmp_path / "store", "--verify")
    assert (good.exit_code, "all files are as they were written" in good.stdout) == (0, True)
    state = store.partitions()[1].states[0]
    (tmp_path / "store" / "states" / state.file).write_bytes(b"nothing")
    bad = run("info", tmp_path / "store", "--verify")
    assert (bad.exit_code, state.file in bad.stdout) == (1, True)
    [said] = store.info(verify=True).damaged
    assert said.startswith(f"{NIGHTS[1]}: score_lr (")
    assert run("replace", tmp_path / "store", said.partition("replace ")[2]).exit_code == 0
    assert store.info(verify=True).damaged == ()
