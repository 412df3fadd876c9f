"""A store of format 1 is read by every later version.

It was written once, with the values beside it, and is never written again; a new format gets a store of its own. From
the root of the repository::

    import sys; sys.path.insert(0, "tests/store")
    from test_store_golden import write; write("/data")
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from files import put

from streameval import Store

GOLDEN = Path(__file__).parents[1] / "data" / "store-v1"
COLUMNS: dict[str, Any] = {"score": "score", "cluster": "cluster", "classes": "class", "by": "country", "unit": "unit"}
RULES = ["roc_auc[score] >= 0.5", "rows drop <= 50%"]


def facts(store: Store) -> Any:
    """What the store answers without its data, as plain JSON values: results, nights, judgements, versions."""
    judgements, results = store.check(RULES, since="2026-01-01").judgements, store.evaluate(by="country").results
    answers = {
        "judged": [[one.rule, one.partition, one.outcome, one.reason] for one in judgements],
        "failing": store.info().failing,
        "values": [[r.metric, r.of, r.slice, repr(r.value), r.rows, repr(r.ci_lower)] for r in results],
        "first version": [repr(r.value) for r in store.evaluate(as_of=0).results],
        "history": [[repr(p.night.value), repr(p.cumulative.value)] for p in store.history("roc_auc").points],
        "versions": [fact["action"] for fact in store.versions()],
        "damaged": list(store.info(verify=True).damaged or ()),
    }
    return json.loads(json.dumps(answers))


def test_a_store_of_format_1_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its states, ledger, judgements and cached results; the values are those that were written, to the last bit."""
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    expected = json.loads(Path("facts.json").read_text())
    assert facts(Store("store", threads=1)) == expected
    shutil.rmtree("store/history")  # the cache is computed again from the states
    assert facts(Store("store", threads=1)) == expected
    store = Store("store", threads=1)
    assert store.update(land(Path("nights"), 3)).new == ("night=2026-01-03",)
    sliced = store.evaluate(by="country", metrics="roc_auc").results
    assert [result.rows for result in sliced if result.of == "score"] == [120, 60, 60]
    store.vacuum(grace="0s")
    assert store.info(verify=True).damaged == ()


def land(data: Path, night: int) -> Path:
    """Write the data of a night."""
    numbers = range(night * 1000, night * 1000 + 40)
    table = {
        "label": pa.array([n * 7 % 3 == 0 for n in numbers]),
        "score": pa.array([n * 37 % 101 / 101 for n in numbers], pa.float32()),
        "cluster": pa.array([n * 13 % 9 for n in numbers]),
        "class": pa.array([n * 13 % 9 // 2 for n in numbers]),
        "country": pa.array([("DE", "FR")[n % 2] for n in numbers]),
        "unit": pa.array([f"u{n % 12}" for n in numbers]),
    }
    folder = data / f"night=2026-01-0{night}"
    put(folder / "part-0.parquet", table)
    return folder


def write(folder: str) -> None:
    """Write a store of two nights, the second in an update of its own, in a folder, and keep it with its answers."""
    data, store = Path(folder, "nights"), Store(Path(folder, "store"), threads=1)
    for night, columns in ((1, COLUMNS), (2, {})):
        store.update(land(data, night), **columns)
    answers = facts(store)
    shutil.copytree(Path(folder, "store"), GOLDEN / "store")
    (GOLDEN / "facts.json").write_text(json.dumps(answers, indent=1) + "\n")
