"""Two verbs at once: one is stopped at every step and the other runs whole; the store stays sound, and neither lies."""

import functools
import itertools
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from files import put
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import DataError, FormatError, StoreError
from streameval.results import Judgement
from streameval.states.scores.counts import ScoreSpec
from streameval.store.files import delta
from streameval.store.files.delta import RowTable
from streameval.store.files.ledger import Ledger
from streameval.store.files.published import PublishedFiles

NAMES = [f"night=2026-01-0{i}" for i in range(1, 4)]
VERBS: dict[str, Callable[[Store, Path], Any]] = {
    "update": lambda store, data: store.update(data),
    "replace": lambda store, data: store.replace(data / NAMES[1]),
    "remove": lambda store, _: store.remove(NAMES[0]),
    "add": lambda store, _: store.add(score="b"),
    "vacuum": lambda store, _: store.vacuum(grace="0s"),
    "vacuum --keep": lambda store, _: store.vacuum(keep="1d", grace="0s"),
    "check": lambda store, _: store.check({"new": "rows >= 1", "floor": "roc_auc[a] >= 2"}),
    "accept": lambda store, _: store.accept(NAMES[1], "known"),
    "evaluate": lambda store, _: store.evaluate(metrics="average_precision"),
    "history": lambda store, _: store.history("roc_auc", "a"),
}
READING = ("evaluate", "history")
ALONE = ("check", "accept")  # verbs that only write judgements
COMMITS = ("update", "replace", "remove", "add", "vacuum --keep")  # all of them commit nights, which is what one meets
PAIRS = [(one, other) for one, other in itertools.product(VERBS, VERBS) if other not in READING]


class Killed(BaseException):
    """As if the process had ended."""


def kill(*_: object, **__: object) -> None:
    """End the process."""
    raise Killed


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nights of data, a store of two, and what an update killed before its commit left of the third."""
    folder = tmp_path_factory.mktemp("begun")
    rng = np.random.default_rng(0)
    for name in NAMES:
        table = pa.table({"label": rng.integers(0, 2, 30), "a": rng.random(30), "b": rng.random(30)})
        put(folder / "data" / name / "part-0.parquet", table)
    store = Store(folder / "store", threads=1)
    store.update([folder / "data" / name for name in NAMES[:2]], score="a", metrics=["roc_auc", "average_precision"])
    store.check({"floor": "roc_auc[a] >= 2"}, NAMES[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "commit", kill)
        patch.setattr(RowTable, "commit", kill)
        for killed in (lambda: store.update(folder / "data"), lambda: store.check("rows >= 1")):
            refuses(Killed, "", killed)
    assert len(list((folder / "store" / "states").iterdir())) == 3
    return folder


class Steps:
    """Counts the steps of a verb, and runs something else whole before one of them."""

    def __init__(self, at: int, other: Callable[[], object]) -> None:
        self.left, self.other, self.lock = at, other, threading.RLock()

    def __call__(self) -> None:
        """Take a step."""
        with self.lock:
            self.left -= 1
            if self.left == 0:
                self.other()

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Take a step after each use of the ledger and of files, before a commit, and before each deletion.

        Between one use and the next, a verb only computes, or reads what a later read or commit would notice.
        """
        for owner, name in (
            (Ledger, "read"),
            (Ledger, "commit"),
            (PublishedFiles, "publish"),
            (PublishedFiles, "list"),
            (PublishedFiles, "delete"),
        ):
            patch.setattr(owner, name, self._watched(getattr(owner, name)))

    def _watched(self, original: Any) -> Any:
        def call(first: Any, *rest: Any, **more: Any) -> Any:
            if original.__name__ in ("commit", "delete"):
                self()
            if original.__name__ == "delete":
                for name in list(*rest):
                    original(first, [name])
                    self()
                return None
            found = original(first, *rest, **more)
            found = list(found) if original.__name__ == "list" else found
            self()
            return found

        return call


def attempt(verb: str, store: Store, data: Path) -> list[str]:
    """Run a verb; it may be told to run again, or that the other has taken its night. Returns it if it succeeded."""
    try:
        VERBS[verb](store, data)
    except (DataError, FormatError, StoreError) as error:
        if not re.search("run (it|the command) again|no such partition|no failure is recorded", str(error)):
            raise
        return []
    return [verb]


def judgements_of(store: Store) -> list[Judgement]:
    """All judgements of a store."""
    return [one for night in store._context.judgements()._by_night.values() for one in night.values()]


@functools.cache
def expected(nights: tuple[Path, ...]) -> float:
    """The number of the raw files, which no verb changes."""
    return evaluate(list(nights), score="a", metrics="roc_auc", threads=1).value("roc_auc")


def check(store: Store, data: Path, done: list[str], evaluations: int = 1) -> None:
    """Every file that counts is sound, the numbers are those of the raw files, and the verbs that are done count."""
    entries = store.partitions()
    assert store.info(verify=True).damaged == ()
    made = judgements_of(store)
    assert {"floor"} | {"new"} & {"new" for verb in done if verb == "check"} <= {one.rule for one in made}
    assert any(one.accepted for one in made) or "accept" not in done
    changed = {entry.partition: {state.of for state in entry.states} for entry in entries}
    assert NAMES[2] in changed or "update" not in done
    assert NAMES[0] not in changed or "remove" not in done or "update" in done  # which folds it again
    assert all("b" in columns for columns in changed.values()) or done not in (["add"], ["add", "add"])
    due = expected(tuple(data / entry.partition for entry in entries))
    for _ in range(evaluations):
        [found] = [r for r in store.evaluate(metrics="roc_auc").results if r.of == "a"]
        assert found.lower <= due <= found.upper
        if all(state.kind == ScoreSpec.kind for entry in entries for state in entry.states):
            assert found.value == due


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_verb_that_is_stopped_at_any_step_while_another_runs_whole(begun, tmp_path, one, other):
    """It is refused or it counts; nothing that counts is deleted, and running both again succeeds.

    Each step meets a vacuum, a commit of nights and one of judgements; the verbs that make such a commit take turns.
    """
    data = begun / "data"
    turns = next((verbs for verbs in (COMMITS, ALONE) if other in verbs), (other,))
    stride, first = len(turns), 1 + turns.index(other)
    apart = ((one in ALONE) != (other in ALONE) or one == "history") and "vacuum" not in (one, other)
    # verbs that write different tables meet in few places
    for at in [2, 99] if apart else itertools.count(first, stride):
        where = tmp_path / str(at)
        shutil.copytree(begun / "store", where)
        done = list[str]()
        steps = Steps(at, lambda where=where, done=done: done.extend(attempt(other, Store(where, threads=1), data)))
        with pytest.MonkeyPatch.context() as patch:
            steps.watch(patch)
            done += attempt(one, Store(where, threads=1), data)
        check(Store(where, threads=1), data, done)
        if steps.left > 0:
            break
    for verb in (one, other):
        done += attempt(verb, Store(where, threads=1), data)
    done = [verb for verb in done if verb not in ("update", "add", "remove")]
    check(Store(where, threads=1), data, done, evaluations=2)  # computed, and cached
    assert at > (1 if apart or one in (*READING, *ALONE) else 3)


def test_a_check_that_was_paused_for_long_is_refused(begun, tmp_path):
    """Also when the commit after its base is gone from the log, below a checkpoint."""
    shutil.copytree(begun / "store", tmp_path / "store")
    store = Store(tmp_path / "store", threads=1)
    paused = store._context.judgements()
    assert paused.rules == {"floor"}  # this reads the table
    for i in range(12):
        store.check({f"rule {i}": "rows >= 1"})
    assert not (tmp_path / "store" / "checks" / "_delta_log" / f"{1:020}.json").exists()
    store.vacuum(grace="0s")
    one = judgements_of(store)[0]
    paused.add(one)
    refuses(StoreError, "", paused.write)
    assert len(store._context.judgements().rules) == 13


def test_a_vacuum_before_each_commit_of_a_check_is_survived(begun, tmp_path, monkeypatch):
    """The rows are written again, as the vacuum has deleted their file."""
    shutil.copytree(begun / "store", tmp_path / "store")
    store, real, left = Store(tmp_path / "store", threads=1), RowTable.commit, [3]

    def interrupted(*given: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] >= 0:
            Store(tmp_path / "store", threads=1).vacuum(grace="0s")
        real(*given, **options)

    monkeypatch.setattr(RowTable, "commit", interrupted)
    assert store.check({"new": "rows >= 1"}).judged
    assert left[0] < 0
    assert "new" in Store(tmp_path / "store")._context.judgements().rules


@pytest.mark.parametrize("lost", ["file", "log"])
def test_damaged_judgements_are_told_with_a_remedy_that_works(begun, tmp_path, caplog, lost):
    """A check refuses to pass; info tells everything else, and a vacuum does all else."""
    shutil.copytree(begun / "store", tmp_path / "store")
    store, checks = Store(tmp_path / "store", threads=1), tmp_path / "store" / "checks"
    [name] = map(checks.joinpath, delta.data_files(store._context.judgements()._opened[0]))
    name.unlink() if lost == "file" else (checks / "_delta_log" / f"{0:020}.json").write_text("{\n}\n")
    told = store.info()
    assert (told.nights, told.failing, dict(told.lines())["failing"]) == (2, None, "unknown")
    for verb in (lambda: store.check("rows >= 1"), store.diagnose, lambda: store.accept(NAMES[1], "known")):
        caught = refuses(StoreError, r"checks: cannot be read: .*, or move it away and check again: ", verb)
        assert caught == told.damaged[0]
    if lost == "log":
        store.vacuum(grace="0s")
        assert told.damaged[0] in caplog.text
    checks.rename(tmp_path / "lost")
    assert not store.check({"floor": "roc_auc[a] >= 2"}, since="2026-01-01").passed
    assert list(store.info().failing) == NAMES[:2]
