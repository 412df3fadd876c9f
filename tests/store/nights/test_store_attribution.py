"""Attribution from a store: the tables of the files, from states alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from processes import run
from refusals import refuses

from streameval import Store, attribute, evaluate
from streameval.errors import OptionError

NIGHTS = 3


@pytest.fixture(scope="module", params=["int", "text"])
def nights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nights whose ids are integers, or texts."""
    folder = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(7)
    for night in range(1, NIGHTS + 1):
        n = 900
        cluster, campaign = rng.zipf(1.6, n) % 97, rng.zipf(1.8, n) % 61
        if request.param == "text":
            cluster, campaign = (np.char.add("id ", ids.astype(str)) for ids in (cluster, campaign))
        table = pa.table(
            {
                "label": rng.integers(0, 2, n),
                "score": rng.random(n),
                "cluster": cluster,
                "campaign": campaign,
                "text": [f"text {i} of {night}" for i in range(n)],
            }
        )
        path = folder / "data" / f"night=2026-01-0{night}"
        put(path / "a.parquet", table)
    return folder / "data"


@pytest.fixture(scope="module", params=["global", "partition"])
def store(request: pytest.FixtureRequest, nights: Path) -> Store:
    """A store of the nights."""
    made = Store(nights.parent / request.param)
    made.update(nights, score="score", cluster="cluster", classes="campaign", cluster_scope=request.param)
    return made


def scope_of(store: Store) -> dict[str, str]:
    """The scope of the store's clusters."""
    return {"cluster_scope": store.name.rpartition("/")[2]}


def test_the_tables_are_those_of_the_files(nights: Path, store: Store) -> None:
    """All nights and some, with examples and texts from the files."""
    asked: dict[str, Any] = {"cluster": "cluster", "examples": "text", "top": 7}
    both = {"classes": "campaign", "label": "label"} | scope_of(store)
    found, want = store.attribute(data=nights, **asked), attribute(nights, **asked, **both)
    assert found.tables() == want.tables()
    assert (found.rows, found.totals, found.dropped) == (want.rows, want.totals, want.dropped)
    last = [nights / f"night=2026-01-0{night}" for night in range(2, NIGHTS + 1)]
    found, want = store.attribute(data=nights, last=NIGHTS - 1, **asked), attribute(last, **asked, **both)
    assert found.tables() == want.tables()


def test_without_data_hashed_ids_are_hashes(nights: Path, store: Store) -> None:
    """Integers are in the states; the costs are the same."""
    found = store.attribute(cluster="cluster", classes="campaign")
    want = attribute(nights, cluster="cluster", classes="campaign", **scope_of(store))
    assert found.merges["false_pairs"] == want.merges["false_pairs"]
    assert found.impure is None
    text = pa.types.is_string(want.splits["class"].type) if want.splits is not None else False
    assert all(str(one).startswith("#") == text for one in found.splits["class"].to_pylist())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "other"}, "contradicts the store"),
        ({"cluster": "cluster", "classes": "other"}, "contradicts the store"),
        ({"cluster": "cluster", "changed_from": "old"}, "keeps no table of two clusterings"),
        ({"cluster": "cluster", "where": "score > 0"}, "name the data for where"),
        ({"cluster": "cluster", "examples": "text"}, "name the data after the store"),
        ({"cluster": "cluster", "memory": "1GiB"}, "attribute takes no option 'memory'"),
        ({"cluster": "cluster", "pos_label": 7}, "contradicts the store"),
    ],
)
def test_what_states_cannot_give_is_refused(store: Store, options: dict[str, Any], message: str) -> None:
    """By name, with the way out."""
    refuses(OptionError, message, store.attribute, **options)


def changed(nights: Path, folder: Path, change: Any) -> Path:
    """A copy of the nights, the first of them changed."""
    shutil.copytree(nights, folder / "data")
    path = folder / "data" / "night=2026-01-01" / "a.parquet"
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)
    return folder / "data"


def test_data_that_were_changed_since_are_refused(nights: Path, store: Store, tmp_path: Path) -> None:
    """Other rows than were folded would be shown as examples of the clusters."""
    data = changed(nights, tmp_path, lambda table: table.slice(1))
    with pytest.raises(OptionError, match=r"01-01: the data .* have 899 rows, not the 900 folded: they were changed"):
        store.attribute(cluster="cluster", data=data, examples="text")


def test_data_without_the_ids_are_refused(nights: Path, store: Store, tmp_path: Path) -> None:
    """Their texts would be missing; as many rows of other ids, in one night after the other."""
    if not pa.types.is_string(pq.read_schema(nights / "night=2026-01-01" / "a.parquet").field("cluster").type):
        pytest.skip("ids that are integers are known without the data")
    data = changed(nights, tmp_path, lambda table: table.set_column(2, "cluster", pa.repeat("other", 900)))
    with pytest.raises(OptionError, match="hold no row of some value of cluster that was counted"):
        store.attribute(partition="night=2026-01-01", cluster="cluster", data=data)


def test_a_store_that_lacks_the_table_says_so(nights: Path, tmp_path: Path) -> None:
    """It can join."""
    made = Store(tmp_path / "store")
    made.update(nights, cluster="cluster")
    assert made.attribute(cluster="cluster").merges is None
    refuses(OptionError, "classes='campaign' contradicts", made.attribute, cluster="cluster", classes="campaign")


def test_a_store_stands_where_data_may(nights: Path, store: Store) -> None:
    """`attribute` takes it, with nights chosen; for `evaluate`, it is an alias of `show`."""
    asked = ("--cluster", "cluster", "--classes", "campaign", "--json", "-")
    done = run("attribute", store.name, *asked, "--last", 2)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 1800
    done = run("attribute", store.name, nights, *asked, "--examples", "text")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["merges"][0]["examples"]
    done = run("show", store.name, "--score", "score", "--last", 1, "--json", "-")
    assert done.exit_code == 0, done.output
    night = nights / f"night=2026-01-0{NIGHTS}"
    want = evaluate(night, score="score").value("roc_auc")
    assert json.loads(done.stdout)["results"][0]["value"] == want
    for chosen in ((), ("--last", 1)):
        both = [run(verb, store.name, "--score", "score", *chosen, "--json", "-") for verb in ("evaluate", "show")]
        assert both[0].output == both[1].output
    assert run("evaluate", store.name, nights, "--score", "score").exit_code == 2


def test_data_that_lack_a_night_are_refused(nights: Path, store: Store) -> None:
    """Examples of some nights would look like examples of all."""
    with pytest.raises(OptionError, match="night=2026-01-02: the data named after the store"):
        store.attribute(cluster="cluster", data=nights / "night=2026-01-01", examples="text")
