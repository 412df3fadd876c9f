"""The store on a cluster of real processes: workers fold, the client commits; the same bytes as on threads."""

import json
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from nightly import FEW, NIGHTS, correct, land
from processes import run
from refusals import refuses

from streameval import Store
from streameval.engine import cluster as engine
from streameval.engine import fold
from streameval.engine.fold import TASK_ROWS
from streameval.errors import ClusterError, CorruptFileError, LabelError, MissingInputError, OptionError
from streameval.options import OPTIONS
from streameval.states import rounds
from streameval.store.files.compaction import Compaction
from streameval.store.nights import fold as nights

SMALL: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": ":0", "memory_limit": "2GiB"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Six nights."""
    for name in NIGHTS[:6]:
        land(name, tmp_path / "data")
    return tmp_path / "data"


def kept(store: Store) -> list[Any]:
    """What counts: names, rows, labels, and the hash of every state file."""
    entries = store.partitions()
    return [(e.partition, e.rows, e.labels, e.fingerprint, [s.content for s in e.states]) for e in entries]


def test_late_labels_touch_nights_on_workers(client: Any, data: Path, tmp_path: Path) -> None:
    """The bytes of threads, of new nights and of those that get labels and classes; an error keeps its words."""
    there, here = Store(tmp_path / "there", client=client), Store(tmp_path / "here", threads=2)
    ids = pq.read_table(data / NIGHTS[1], columns=["message_id"])["message_id"]
    for name, label in (("good", pa.array([i % 3 == 0 for i in range(len(ids))])), ("bad", pa.array(range(len(ids))))):
        table = pa.table({"message_id": ids.slice(0, 100), "label": label.slice(0, 100).cast(pa.int8())})
        pq.write_table(table.append_column("kind", pa.array(range(100))), tmp_path / f"{name}.parquet")
    none = pa.table({"message_id": ids.slice(0, 1), "label": pa.nulls(1, pa.int8()), "kind": [0]})
    pq.write_table(none, tmp_path / "none.parquet")
    late = {"on": "message_id", "label_conflicts": "latest", "classes": "kind", "labels": tmp_path / "none.parquet"}
    for store in (there, here):
        store.update([data / name for name in NIGHTS[:3]], **FEW, **late)
        assert store.update(data / NIGHTS[3], labels=tmp_path / "good.parquet").changed == (NIGHTS[1],)
    assert kept(there) == kept(here)
    refuses(LabelError, r"bad\.parquet: .*; correct the labels", there.update, labels=tmp_path / "bad.parquet")
    assert kept(there) == kept(here)


def test_every_verb_that_folds_gives_the_bytes_of_threads(client: Any, data: Path, tmp_path: Path) -> None:
    """Update, replace and add: the ledger, the files and the nightly results of a store folded here."""
    seen: list[tuple[int, int]] = []
    there = Store(tmp_path / "there", client=client, progress=lambda *now: seen.append(now))
    here = Store(tmp_path / "here", threads=2)
    for store in (there, here):
        assert store.update(data, **FEW).new == tuple(NIGHTS[:6])
    assert kept(there) == kept(here)
    rows = sum(entry.rows for entry in here.partitions())
    assert (rows, rows) in seen
    correct(NIGHTS[2], data)
    land(NIGHTS[6], data)
    for store in (there, here):
        assert store.update(data).changed == (NIGHTS[2],)
        assert store.replace(data / NIGHTS[3]).changed == (NIGHTS[3],)
        assert store.add(score="score_q", since="2026-01-03").rows
        assert store.update(data, verify=True).changed == tuple(NIGHTS[:2])  # those that had no score_q
    assert kept(there) == kept(here)
    assert there.evaluate().to_json() == here.evaluate().to_json()
    assert there.history("roc_auc", "score_lr").to_json() == here.history("roc_auc", "score_lr").to_json()
    assert there.update(data).unchanged == 7


def test_all_workers_fold_a_large_night(
    client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers pack scores, clusters and cells, the client the slices; the files are those of a thread.

    As in an evaluation, a memory limit that does not cover the rows of finished tasks is said beforehand.
    """
    task_rows = TASK_ROWS // 10
    for module in (fold, nights):
        monkeypatch.setattr(module, "TASK_ROWS", task_rows)
    monkeypatch.setattr(engine, "RANGE_BYTES", engine.RANGE_BYTES // 10)
    monkeypatch.setattr(rounds, "SLAB", rounds.SLAB // 10)
    rows = 4 * task_rows
    rng = np.random.default_rng(5)
    label = rng.random(rows) < 0.2
    cluster = rng.integers(0, rows // 2, rows)
    columns = {
        "label": label,
        "score": rng.normal(label).astype("f4"),
        "cluster": pa.array(cluster, mask=rng.random(rows) < 0.3),
        "campaign": pa.array(cluster // 3, mask=rng.random(rows) < 0.1),
        "country": pa.array(rng.choice(["DE", "FR"], rows)),
    }
    night = tmp_path / "data" / "night=2026-01-01"
    put(night / "part.parquet", columns, row_group_size=task_rows // 4)
    asked = {"score": "score", "cluster": "cluster", "classes": "campaign", "nulls": "singleton", "by": "country"}
    there = Store(tmp_path / "there", client=client, memory="10MB")
    here = Store(tmp_path / "here", threads=1, memory="30MB")
    for store in (there, here):
        assert store.update(night.parent, **asked).rows == rows
    assert kept(there) == kept(here)
    assert "10.0 MB of memory of a worker is too little for the rows of finished tasks" in caplog.text


def test_an_error_of_a_worker_names_the_file_and_good_nights_count(client: Any, data: Path, tmp_path: Path) -> None:
    """A file that cannot be read is named, the other nights count, and its own once the file is mended."""
    store = Store(tmp_path / "store", client=client)
    store.update(data / NIGHTS[0], **FEW)
    path = data / NIGHTS[1] / "part-0.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    refuses(CorruptFileError, NIGHTS[1], store.update, data)
    assert [entry.partition for entry in store.partitions()] == [NIGHTS[0], *NIGHTS[2:6]]
    path.write_bytes(whole)
    assert store.update(data).new == (NIGHTS[1],)
    refuses(MissingInputError, "", store.update, tmp_path / "nothing")
    with pytest.raises(OptionError, match="give one of them"):
        Store(tmp_path / "store", client=client, threads=1).replace(data / NIGHTS[0])


def test_a_worker_that_dies_is_replaced_and_nothing_counts_twice(data: Path, tmp_path: Path) -> None:
    """Its partitions are folded again, into the same files."""
    with distributed.LocalCluster(**SMALL) as made, distributed.Client(made, set_as_default=False) as client:
        first, *_ = client.run(os.getpid).values()
        done: list[int] = []

        def kill(rows: int, _: int) -> None:
            if not done:
                done.append(rows)
                os.kill(first, signal.SIGKILL)

        there = Store(tmp_path / "there", client=client, progress=kill)
        here = Store(tmp_path / "here", threads=1)
        for store in (there, here):
            store.update(data, **FEW)
    assert done
    assert kept(there) == kept(here)


def test_a_place_that_workers_do_not_share_is_refused(client: Any, data: Path, tmp_path: Path) -> None:
    """What they wrote is looked for before the commit; data that they cannot see are named with the worker."""
    store = Store(tmp_path / "store", client=client)
    store.update(data / NIGHTS[0], **FEW)
    elsewhere, states = tmp_path / "elsewhere", tmp_path / "store" / "states"

    def move(*_: int) -> None:
        if not elsewhere.exists():
            shutil.copytree(states, elsewhere)
            for path in states.iterdir():
                path.unlink()

    with pytest.raises(ClusterError, match=r"what the workers wrote is not there .*share"):
        Store(tmp_path / "store", client=client, progress=move).update(data / NIGHTS[1])
    shutil.copytree(elsewhere, states, dirs_exist_ok=True)
    assert [entry.partition for entry in store.partitions()] == NIGHTS[:1]
    assert store.evaluate().rows


def test_looking_runs_on_a_worker(client: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`evaluate` and `check` read no state here, unless a curve is drawn; on the command line as well."""
    Store(tmp_path / "store", threads=1).update(data, **FEW)
    here = Store(tmp_path / "store", threads=1)
    expected, curve = here.evaluate(metrics="agc").to_json(), here.evaluate().curve("roc").area
    rules = ["agc@0.5 >= 0.1", "aul drop <= 1 or undecided"]
    judged = here.check(rules).to_dict()
    for cached in ("history",):
        shutil.rmtree(tmp_path / "store" / cached)
    with monkeypatch.context() as patched:
        patched.setattr(Compaction, "read_all", None)
        there = Store(tmp_path / "store", client=client)
        found = there.evaluate(metrics="agc")
        assert found.to_json() == expected
        assert there.check(rules).to_dict() == judged
        words = [str(tmp_path / "store"), "--scheduler", client.scheduler.address, "--json", "-"]
        shown = run("show", *words, "--metric", "agc_ratio")
        assert json.loads(shown.stdout)["options"]["metrics"] == ["agc_ratio"], shown.stderr
        done = run("check", *words, "--rule", "agc@0.25 >= 0.1")
        assert (done.exit_code, json.loads(done.stdout)["passed"]) == (0, True)
    assert there.evaluate(metrics="agc").curve("roc").area == curve
    with pytest.raises(OptionError, match="give one of them"):
        Store(tmp_path / "store", client=client, threads=1).evaluate(metrics="pr_auc")


VERBS = (
    ("evaluate DATA --score score_lr --score score_nb --cluster cluster_loose --classes campaign --truncate 0.1", True),
    ("evaluate DATA --score score_lr --by label --common-rows", True),
    ("evaluate DATA --cluster cluster_loose --unlabelled size --aul-threshold cluster_loose=3", True),
    ("evaluate DATA --score score_lr --nan score_lr=drop --approx", True),
    ("sketch DATA --column score_q", True),
    ("attribute DATA --cluster cluster_loose --classes campaign --label label", True),
    ("update STORE DATA --score score_lr --cluster cluster_loose --nan drop", False),
    ("replace STORE DATA/night=2026-01-02", False),
    ("add STORE DATA --score score_nb --classes campaign --metric brier_score", False),
    ("show STORE", True),
    ("show STORE --by night --metric aul --truncate 0.2", True),
    ("history STORE --metric roc_auc --metric aul", True),
    ("history STORE --metric agc@0.05 --of score_nb --last 2", True),
    ("check STORE --rule 'roc_auc[score_lr] >= 0.9' --rule 'rows >= 100' --since 2026-01-01", True),
    ("evaluate STORE --last 2", True),
    ("attribute STORE --cluster cluster_loose", True),
    ("attribute STORE DATA --cluster cluster_loose --examples message_id --last 2", True),
    ("diagnose STORE --partition night=2026-01-03", True),
)


def test_every_verb_gives_the_same_numbers_with_a_scheduler(client: Any, data: Path, tmp_path: Path) -> None:
    """By the command line, compared with threads of this process."""
    for night in NIGHTS[3:6]:
        shutil.rmtree(data / night)
    address = client.scheduler.address
    for verb, prints in VERBS:
        told = []
        for place, where in (("here", ["--threads", "2"]), ("there", ["--scheduler", address])):
            known = {"DATA": str(data), "STORE": str(tmp_path / place)}
            words = [word.replace("DATA", known["DATA"]).replace("STORE", known["STORE"]) for word in shlex.split(verb)]
            done = run(*words, *where, *(["--json", "-"] if prints else []))
            assert done.exit_code == 0, (verb, place, done.output, done.stderr)
            told.append(json.loads(done.stdout) if prints else done.stderr.replace(known["STORE"], ""))
        assert told[0] == told[1], verb
    here, there = (Store(tmp_path / place) for place in ("here", "there"))
    assert kept(here) == kept(there)
    assert {verb.split()[0] for verb, _ in VERBS} == {v for o in OPTIONS if o.name == "client" for v in o.verbs}
