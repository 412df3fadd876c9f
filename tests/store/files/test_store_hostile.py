"""Stores that somebody damaged or forged: refused with one clear error, in bounded time, nothing opened outside."""

import json
import math
import random
import shutil
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nightly import DATA, FEW, NIGHTS, forge, land
from processes import run
from refusals import refuses

from streameval import Store, evaluate
from streameval.errors import DataError, FormatError, OptionError, StoreError, StreamevalError, mask_credentials
from streameval.results import Scalar
from streameval.scan.files.uris import Uri
from streameval.store.files.delta import data_files
from streameval.store.files.entries import SCHEMA, Entry
from streameval.store.files.location import Location
from streameval.store.files.published import PublishedFiles, seal, unseal
from streameval.store.nights.results import ResultCache


def reseal(store: Path, changes: dict) -> None:
    """Change the record of a ledger's last commit, with the right checksum."""
    log = max((store / "ledger" / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["streameval"] = seal(unseal(line["commitInfo"]["streameval"]) | changes)
    log.write_text("\n".join(map(json.dumps, lines)))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A store of three nights, with cached results and merged histograms."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streameval.store.files.compaction.FAN", 2)
        made = Store(folder / "store", threads=1)
        nights = [land(name, folder / "data") for name in NIGHTS[:2]]
        made.update(nights, **FEW, approx=True, metrics=["roc_auc", "aul"])
        made.update(land(NIGHTS[2], folder / "data"))
        made.evaluate()
        made.history("roc_auc")
    return folder


@pytest.fixture
def store(begun, tmp_path):
    """A copy of it."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    return Store(tmp_path / "store", threads=1)


def numbers(store: Path) -> tuple:
    """Everything that a store says of its nights."""
    opened = Store(store, threads=1)
    cached, points, computed = opened.evaluate(), opened.history("roc_auc").points, opened.evaluate(metrics="agc")
    told = cached.to_json(), computed.to_json(), [point.to_dict() for point in points]
    return *told, [entry.partition for entry in opened.partitions()]


def is_cut(commit: bytes) -> bool:
    """Whether the last line of a commit is no JSON, as a power cut may leave it."""
    try:
        json.loads(commit.rstrip(b"\0\r\n ").rpartition(b"\n")[2])
    except ValueError:
        return True
    return False


@pytest.mark.usefixtures("store")
def test_a_damaged_file_is_refused_or_rebuilt_and_never_believed(tmp_path):
    """One bit turned, one byte changed, or the end cut off, in any file: the same numbers, or an error of ours."""
    whole, draw, seen = numbers(shutil.copytree(tmp_path / "store", tmp_path / "whole")), random.Random(0), Counter()
    files = sorted(path.relative_to(tmp_path / "store") for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert {path.parts[0] for path in files} == {"ledger", "states", "history", "merged"}
    earlier = shutil.copytree(tmp_path / "store", tmp_path / "earlier")
    newest = max(
        path
        for path in files
        if path.parts[1:2] == ("_delta_log",) and path.parts[0] == "ledger" and path.suffix == ".json"
    )
    (earlier / newest).unlink()
    before = numbers(earlier)
    tries = {"ledger": 5, "history": 5, "states": 2, "merged": 2}  # states have the hash of their bytes in their names
    for file in [path for path in files for _ in range(tries[path.parts[0]])]:
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "store", copy)
        content = bytearray((copy / file).read_bytes())
        at = draw.randrange(len(content))
        content[at] ^= 1 << draw.randrange(8)
        (copy / file).write_bytes(content[:at] if draw.random() < 0.3 else content)
        try:
            found = numbers(copy)
            cut = file == newest and is_cut((copy / file).read_bytes())
            assert found == whole or (cut and found == before), (file, at)
            seen[file.parts[0], "same"] += 1
        except StreamevalError:
            seen[file.parts[0], "refused"] += 1
        shutil.rmtree(copy)
    assert not seen["history", "refused"]
    assert not seen["merged", "refused"]
    assert seen["ledger", "refused"]
    assert seen["states", "refused"]


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3]),
    "garbled": lambda path: path.write_bytes(random.Random(0).randbytes(path.stat().st_size)),
    "gone": lambda path: path.unlink(),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_of_the_cache_is_made_again(tmp_path, damage):
    """Rows, commits, checkpoints: what can be read is used, and the next write mends the table for ever."""
    whole, facts = Location.of(str(tmp_path / "whole")), ("evaluation", "night", "score")
    for i in range(11):
        cache = ResultCache(whole)
        for j in range(i):
            cache.find(f"key {j}")
        cache.add(*facts, f"key {i}", [Scalar.certain("roc_auc", i / 16)])
        cache.write(0, set())
    files = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file())
    assert any(".checkpoint." in path.name for path in files)
    named = {file.name for file in files if len(file.parts) > 1} | set(data_files(ResultCache(whole)._table))
    for file in [file for file in files if file.name in named]:
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole", copy)
        DAMAGES[damage](copy / file)
        cache = ResultCache(Location.of(str(copy)))
        for key in ("key 3", "key 10"):
            assert all(f"key {result.value * 16:.0f}" == key for result in cache.find(key))
        cache.add(*facts, "new", [Scalar.certain("roc_auc", 1.0)])
        cache.write(0, set())
        again = ResultCache(Location.of(str(copy)))
        assert ([result.value for result in again.find("new")], again.current) == ([1.0], True), file
        shutil.rmtree(copy)


def test_a_store_that_cannot_be_written_is_evaluated(store, monkeypatch):
    """Only the cache goes without; an update says why it fails."""
    expected = store.evaluate(metrics="agc").to_json()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert store.evaluate(metrics="agc", partition=NIGHTS[:3]).to_json() == expected
    assert store.evaluate(metrics=["agc", "aul"]).value("aul") > 0
    assert store.history("pr_auc").points
    refuses(StoreError, r"cannot be written: .*Permission denied", store.remove, NIGHTS[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_disk_that_fills_is_left_as_it_was(tmp_path, monkeypatch, threads):
    """States written before the disk was full belong to no version, and the next update needs their room."""
    store, rename = Store(tmp_path / "store", threads=threads), PublishedFiles._rename

    def fill(self: PublishedFiles, part: Path, name: str) -> None:
        if next(left) == 5:
            raise OSError(28, "No space left on device")
        time.sleep(0.01)  # the other thread is in the middle of it
        rename(self, part, name)

    for verb in (partial(store.update, DATA, **FEW), partial(store.add, score="score_nb")):
        there = set((tmp_path / "store").rglob("*.parquet"))
        left = count()
        with monkeypatch.context() as patch:
            patch.setattr(PublishedFiles, "_rename", fill)
            refuses(StoreError, r"cannot be written: .*No space left on device; nothing was", verb)
        time.sleep(0.2)
        assert set((tmp_path / "store").rglob("*.parquet")) == there
        verb()
    expected = evaluate(DATA, score=["score_lr", "score_nb"], cluster=FEW["cluster"])
    assert store.evaluate().to_json() == expected.to_json()


@pytest.mark.parametrize("name", ["../../outside.parquet", "/etc/passwd", "states/x.parquet", "", "x" * 64])
def test_names_that_lead_out_of_a_store_are_not_opened(store, monkeypatch, name):
    """In a ledger, although its checksums are right."""
    forge(store, lambda e: {"states": (replace(e.states[0], file=name), *e.states[1:])}, NIGHTS[0])
    opened = []
    original = PublishedFiles._bytes
    monkeypatch.setattr(PublishedFiles, "_bytes", lambda self, name: opened.append(name) or original(self, name))
    store.vacuum(grace="0s")  # needs none of them
    judged = partial(store.check, "pr_auc > 0", since="2026-01-01")  # a value of the first night that is not known yet
    for verb in (store.evaluate, lambda: store.history("roc_auc"), judged):
        refuses(FormatError, "not the name of a file of a store; it was not opened", verb)
    assert name not in opened


@pytest.mark.parametrize(
    "record",
    [
        "[" * 200_000,
        "[1, 2]",
        "null",
        '{"format": 1}',
        '{"format": 1, "library": "0.1.0", "keeps": [1]}',
        '{"format": 1, "library": "0.1.0", "keeps": {"options": {"score": 3}, "types": {}}}',
        '{"format": 1, "library": "0.1.0", "keeps": {"options": {"unheard": 3}, "types": {}}}',
        '{"format": 1, "library": "0.1.0", "keeps": {"options": {}, "types": {}}, "runs": "x"}',
    ],
)
def test_a_forged_record_of_a_commit_is_refused(store, tmp_path, record):
    """Deep, of wrong types, incomplete, or without its checksum."""
    log = max((tmp_path / "store" / "ledger" / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["streameval"] = record
    log.write_text("\n".join(map(json.dumps, lines)))
    for verb in (store.evaluate, lambda: store.update(tmp_path / "data"), store.vacuum):
        refuses((StoreError, FormatError), "", verb)


@pytest.mark.parametrize(
    "index",
    [
        "[" * 200_000,
        '[{"file": "x", "stands_for": []}]',
        seal({"files": [{"file": "x", "stands_for": []}]}),
        seal({"files": [{"file": 1, "stands_for": [2]}]}),
        seal({"files": {"a": 1}}),
        seal({}),
        "{names}",
    ],
)
def test_a_forged_index_of_merged_files_is_passed_over(store, tmp_path, monkeypatch, index):
    """The nights are read instead; nothing loops, and no file outside is opened; the next update mends it."""
    monkeypatch.setattr("streameval.store.files.compaction.FAN", 2)
    names = [next(s.file for s in e.states if s.of == "score_lr") for e in store.partitions()]
    if index == "{names}":
        index = seal({"files": [{"file": "../../outside.parquet", "stands_for": names[:2]}]})
    (tmp_path / "store" / "merged" / "index.json").write_text(index)
    expected = evaluate(tmp_path / "data", **FEW, approx=True, metrics="agc", threads=1)
    assert store.evaluate(metrics="agc").to_json() == expected.to_json()
    store.update(land(NIGHTS[3], tmp_path / "data"))
    assert isinstance(unseal((tmp_path / "store" / "merged" / "index.json").read_bytes())["files"], list)


def test_rows_of_wrong_types_are_refused(store, tmp_path):
    """Labels that are not counts, and columns of other tables."""
    for values in ("[" * 100_000, "{", "3", "[[]]"):
        forge(store, lambda e, values=values: {"labels": e.labels._replace(values=values)})
        refuses(FormatError, "labels in the ledger are damaged", store.evaluate)
    rows = pa.table({name: pa.array([{"a": 1}]) for name in SCHEMA.names})
    name, _ = PublishedFiles(store._context.ledger.location).publish(lambda sink: pq.write_table(rows, sink))
    reseal(tmp_path / "store", {"runs": [name]})
    refuses(StoreError, "cannot be read", store.evaluate)


@pytest.mark.parametrize(("column", "value"), [("only", 0), ("negatives", 2**62), ("bin", 690_000), ("only", -(2**63))])
def test_a_forged_state_is_refused_by_the_name_of_its_file(store, column, value):
    """Its checksum is right, in a ledger whose checksum is right; alone, and among the states of other nights."""
    files = PublishedFiles(store._context.location.child("states"))

    def forged_states(entry: Entry) -> dict:
        kept = entry.state("score", "score_lr")
        table = pq.read_table(pa.BufferReader(files.load(kept.file)))
        at = table.schema.get_field_index(column)
        forged = table.set_column(at, table.schema.field(at), pa.array([value, *table[column].to_pylist()[1:]]))
        name, _ = files.publish(partial(pq.write_table, forged))
        return {"states": tuple(replace(state, file=name) if state == kept else state for state in entry.states)}

    forge(store, forged_states, *NIGHTS[:2])
    for verb in (
        partial(store.evaluate, metrics="agc"),
        partial(store.evaluate, NIGHTS[0]),
        partial(store.history, "agc"),
    ):
        refuses(FormatError, r"states/[0-9a-f]{64}-[0-9a-f]{16}\.parquet: .* damaged", verb)


@pytest.mark.parametrize(
    "facts",
    [
        "[", "3", "[" * 100_000, '{"left_out": null}', '{"left_out": 1.5}', '{"left_out": [["x", "y", "z"]]}',
        '{"left_out": [{"a": 1}]}', '{"nulls": [1]}', '{"nulls": {"label": "x"}}', '{"files": {"a": 1}}',
        '{"files": [{"file": 1, "rows": 1, "nulls": {}}]}', '{"files": [{"file": "x", "rows": -1, "nulls": {}}]}',
    ],
)  # fmt: skip
def test_forged_facts_of_a_night_are_refused(store, facts):
    """They were unpacked as they came, with a raw error."""
    forge(store, lambda _: {"facts": facts}, NIGHTS[0])
    verbs = [store.evaluate, partial(store.history, "roc_auc"), partial(store.check, "agc > 0", again=True)]
    for verb in [*verbs, store.info]:
        refuses(FormatError, r"in the ledger are damaged", verb)


SECRETS = ["SECRETKEY", "SEC/RETKEY", "7/RETKEY", "SEC@RETKEY", "SEC%2FRETKEY", "SEC+RET=KEY", "p@S/RETKEY"]


@pytest.mark.parametrize("secret", SECRETS)
def test_credentials_are_never_shown(secret):
    """Neither in a repr nor in a message or the errors behind it."""
    options = "?endpoint_override=127.0.0.1:1&scheme=http&region=eu&request_timeout=0.1&connect_timeout=0.1"
    uri = f"s3://AKIDX:{secret}@bucket/place{options}"
    told = [repr(Store(uri)), repr(Store(uri)._context.location)]
    for bad in (f"http://AKIDX:{secret}@host/x", f"{uri}&unheard=1", f"s3://AKIDX:{secret}@{options}"):
        with pytest.raises((DataError, OptionError)) as caught:
            Store(bad) if bad.startswith("http") else evaluate(bad, score="s")
        told.append("".join(traceback.format_exception(caught.value)))
    for text in told:
        assert not [part for part in ("AKIDX", "RETKEY", "SECRET") if part in text], text


def test_a_secret_that_may_end_at_two_places_is_refused():
    """Its rest would be a part of the path, which messages show; a secret of 40 characters ends at the first @."""
    with pytest.raises(OptionError, match="more than one @; give the credentials in the environment") as caught:
        evaluate("s3://AKIDX:SECRET@bucket/RETKEY@bucket/x", score="s")
    assert "RETKEY" not in str(caught.value)
    uri = Uri.parse(f"s3://AKIDX:{'K' * 40}@bucket/user=a@b.com/x")
    assert (uri.path, uri.secret) == ("bucket/user=a@b.com/x", "K" * 40)


URI = "s3://AKIDX:SEC/RETKEY@bucket/x?endpoint_override=127.0.0.1:1&scheme=http&region=eu&connect_timeout=0.1"


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", URI.replace("//", "/"), "--score", "s"],
        ["evaluate", f" {URI}", "--score", "s"],
        ["evaluate", ".", "--json", URI],
        ["evaluate", ".", "--config", URI],
        ["evaluate", ".", "--rules", URI],
        ["evaluate", ".", "--memory", URI],
        ["evaluate", ".", "--where", URI],
        ["evaluate", ".", "--scheduler", URI, "--score", "s"],
        ["show", URI, URI],
        ["update", URI, f"{URI}/y"],
        ["simulate", URI, "--rows", "10"],
        ["metrics", URI],
        ["metrics", "http://AKIDX:7/RETKEY@host/x"],
        ["metrics", "s3://AKIDX:@bucket/x??secret_key=RETKEY"],
        ["metrics", "s3://AKIDX@bucket/x"],
        ["evaluate", "s3:AKIDX:RETKEY@bucket/x", "--score", "s"],
        ["evaluate", "s3://AKIDX:RETKEY?x=1@bucket/x?region=eu", "--score", "s"],
        ["evaluate", "https://AKIDX:RETKEY?x=1@host/x", "--score", "s"],
        ["show", "s3://AKIDX:RETKEY"],
        ["show", "s3:/AKIDX:SEC RETKEY@bucket/x"],
        ["evaluate", "s3://AKIDX:SEC RETKEY@bucket/x", "--score", "s"],
        ["evaluate", "s3://AKIDX:SEC'RETKEY@bucket/x", "--score", "s"],
        ["evaluate", "s3://AKIDX:SEC@S RETKEY@bucket/x", "--score", "s"],
        ["update", "s3://AKIDX:SEC RETKEY@bucket/store", "."],
        ["metrics", "s3://AKIDX:SEC RETKEY@bucket/x"],
    ],
)
def test_no_command_repeats_credentials(words, tmp_path, monkeypatch):
    """Whatever is wrong with them, or wherever they are given by mistake; nothing is written under their name."""
    monkeypatch.chdir(tmp_path)
    found = run(*words)
    assert found.exit_code in (1, 2)
    assert not [part for part in ("AKIDX", "RETKEY", "SEC") if part in found.output], found.output
    assert not list(tmp_path.iterdir())


def test_a_failed_update_does_not_affect_what_is_published_later(tmp_path, monkeypatch):
    """The same object goes on: a vacuum after an update on a full disk turns nights into histograms that stay."""
    store = Store(tmp_path / "store")
    store.update(DATA, **FEW)

    def fill(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PublishedFiles, "_rename", fill)
        refuses(StoreError, "No space left on device", store.replace, DATA)
    assert store.vacuum(keep="1d", grace="0s").bounded
    assert store.evaluate().rows == evaluate(DATA, **FEW).rows


@pytest.mark.parametrize("path", ["../../outside.parquet", "{tmp}/outside.parquet"])
def test_rows_outside_of_a_ledger_are_not_opened(store, tmp_path, path):
    """A record may name any path, a ledger has only names."""
    shutil.copy(DATA / NIGHTS[0] / "part-0.parquet", tmp_path / "outside.parquet")
    reseal(tmp_path / "store", {"runs": [path.format(tmp=tmp_path)]})
    refuses(StoreError, "not the name of a file of a store; it was not opened", store.evaluate)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fingerprint": None}, "no value for 'fingerprint'"),
        ({"partition": None}, "no value for 'partition'"),
        ({"updated": None}, "no value for 'updated'"),
        ({"bytes": -1}, "the value -1 for 'bytes'"),
        ({"rows": 2**63 - 1}, "the value 9223372036854775807 for 'rows'"),
        ({"rows": 7}, "damaged"),
        ({"labels": None}, "no value for 'labels'"),
        (
            {"labels": {"column": "label", "values": "[]", "neg": -1, "pos": 0, "null": 0, "incomplete": 0}},
            "the value -1",
        ),
        ({"labels": {"column": "label", "values": "[]", "neg": 1, "pos": 1, "null": 0, "incomplete": 0}}, "damaged"),
        ({"states": None}, "no value for 'states'"),
        ({"partition": NIGHTS[1]}, f"two rows are of partition {NIGHTS[1]!r}"),
    ],
    ids=str,
)
def test_forged_rows_of_a_night_are_refused(store, tmp_path, change, said):
    """They were counted, or raised a raw error."""
    ledger = store._context.ledger
    snapshot = ledger.read()
    rows = [
        row | (change if row["partition"] == NIGHTS[0] else {}) for run in snapshot.runs for row in run.rows.to_pylist()
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    name, _ = PublishedFiles(ledger.location).publish(lambda sink: pq.write_table(table, sink))
    reseal(tmp_path / "store", {"runs": [name]})
    judged = partial(store.check, "rows > 1", since="2026-01-01")
    for verb in (partial(store.evaluate, metrics="agc"), judged, store.info):
        refuses((StoreError, FormatError), said, verb)


def test_a_forged_state_of_an_unknown_column_is_folded_again(store, tmp_path):
    """The verification of an update raised a raw KeyError; nights without their states are named until then."""
    expected = store.evaluate().to_json()
    forge(store, lambda e: {"states": tuple(replace(state, of=f"{state.of}2") for state in e.states)}, NIGHTS[0])
    assert "no score_lr in 1 of 3 partitions" in store.evaluate().to_json()
    assert store.update(tmp_path / "data", verify=True).changed == (NIGHTS[0],)
    assert store.evaluate().to_json() == expected


def test_a_column_is_added_to_nights_whose_facts_have_no_files(tmp_path):
    """The counts by file are those of the column alone; it was a raw KeyError."""
    store = Store(tmp_path / "store", threads=1)
    store.update(land(NIGHTS[0], tmp_path / "data"), **FEW)
    forge(store, lambda _: {"facts": json.dumps({"nulls": {"label": 0}})})
    assert store.add(score="score_nb").changed == (NIGHTS[0],)
    assert store.evaluate().value("roc_auc", of="score_nb") > 0


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """A store of two nights."""
    folder = tmp_path_factory.mktemp("exact")
    Store(folder / "store", threads=1).update([land(name, folder / "data") for name in NIGHTS[:2]], **FEW)
    return folder


@pytest.mark.parametrize("kind", ["score_counts", "score_histogram", "cluster_counts", "x", ""])
@pytest.mark.parametrize("of", ["score_lr", "cluster_loose"])
def test_a_forged_kind_of_a_state_is_refused(exact, tmp_path, kind, of):
    """A spec was made of that of another state, with a raw TypeError."""
    store = Store(shutil.copytree(exact, tmp_path, dirs_exist_ok=True) / "store", threads=1)
    before = store.partitions()
    forge(store, lambda e: {"states": tuple(replace(s, kind=kind) if s.of == of else s for s in e.states)}, NIGHTS[0])
    if store.partitions() == before:
        return
    metric = "agc" if of == "score_lr" else "aul"
    for verb in (store.evaluate, partial(store.evaluate, metrics=metric), partial(store.history, metric)):
        refuses(FormatError, r"; (restore the ledger|fold its partition again)", verb)
    for change in (partial(store.vacuum, keep="0d", grace="0s"), partial(store.add, nan="drop", score="score_nb")):
        with suppress(StreamevalError):
            change()


def test_a_forged_type_of_slices_is_refused(tmp_path):
    """An update raised a raw AttributeError, and info could not be written as JSON."""
    for name in "12":
        pq.write_table(pa.table({"label": [0, 1], "a": [0.1, 0.2], "g": [1, 2]}), tmp_path / f"night={name}.parquet")
    store = Store(tmp_path / "store", threads=1)
    store.update(tmp_path / "night=1.parquet", score="a", by="g")
    keeps = store._context.ledger.read().configuration
    for kind in (math.nan, "", "x y", None, [1], {}, "decimal128(99, 2)", "timestamp[xx, tz=UTC]"):
        reseal(tmp_path / "store", {"keeps": keeps | {"types": {"a": "f8", "by g": kind, "other": kind}}})
        for verb in (store.info, partial(store.update, tmp_path / "night=2.parquet")):
            refuses(FormatError, "the ledger has a column of type", verb)
    reseal(tmp_path / "store", {"keeps": keeps | {"types": {"a": "f8", "by g": "i", "other": kind}}})
    assert store.info().types == {"a": "f8", "by g": "i"}


@pytest.mark.parametrize("kind", ["", "f16", "d", "d999", "d-1", None, 3, [], ["f4"], {"a": 1}])
def test_a_forged_type_of_a_column_is_refused(store, kind):
    """In the configuration, whatever it is."""
    types = store._context.ledger.read().configuration["types"]
    forge(store, lambda _: {}, types=types | {"score_lr": kind})
    refuses(FormatError, "the ledger has a column of type", store.evaluate, metrics="agc")


@pytest.mark.parametrize("gone", ["score", "cluster", "classes", "sketch", "unit"])
def test_a_configuration_whose_column_has_no_type_is_refused(tmp_path, gone):
    """Its states cannot be read; every verb raised a raw KeyError."""
    night = tmp_path / "night=2026-01-01.parquet"
    numbers = [0.5, 1.0, 1.5, 2.0]
    pq.write_table(
        pa.table({"label": [0, 1, 0, 1]} | dict.fromkeys(("score", "cluster", "classes", "sketch", "unit"), numbers))
        .set_column(2, "cluster", pa.array([1, 1, 2, 2]))
        .set_column(3, "classes", pa.array(list("abab")))
        .set_column(5, "unit", pa.array([1, 2, 3, 4])),
        night,
    )
    store = Store(tmp_path / "store", threads=1)
    kept = {name: name for name in ("score", "cluster", "classes", "sketch", "unit")}
    store.update(night, **kept, metrics=["default", "roc_auc"], ci=0.9)
    types = store._context.ledger.read().configuration["types"]
    forge(store, lambda _: {}, types={name: kind for name, kind in types.items() if name != gone})
    verbs = [store.evaluate, partial(store.history, "roc_auc"), partial(store.update, night), store.vacuum, store.info]
    for verb in verbs:
        refuses(FormatError, f"store: night.* states of column '{gone}', whose type is missing", verb)


@pytest.mark.parametrize("kinds", [(pa.int8(), pa.string()), (pa.string(), pa.bool_())])
def test_nights_without_positives_may_differ_in_the_type_of_their_labels(tmp_path, kinds):
    """The values seen are numbers here and texts there, which have no order; that was reported as damage."""
    store = Store(tmp_path / "store", threads=1)
    for night, (kind, value) in enumerate(zip([*kinds, kinds[0]], (0, 0, 1), strict=True)):
        label = pa.array([0, 0, value]).cast(pa.int8()).cast(kind)
        pq.write_table(pa.table({"label": label, "score": [0.1, 0.2, 0.3]}), tmp_path / f"night={night}.parquet")
        store.update(tmp_path / f"night={night}.parquet", score="score", pos_label="1")
        assert store.evaluate().rows == 3 * night + 3
    assert store.evaluate().value("roc_auc") == 7 / 8


def test_a_secret_with_a_blank_is_refused_and_a_message_keeps_its_blanks():
    """A blank would end the URI in a text; it is percent-encoded."""
    with pytest.raises(OptionError, match=r"s3://…: a secret has a blank or a quote; encode them as %20"):
        Uri.parse("s3://AKIDX:SEC RETKEY@bucket/x")
    assert Uri.parse("s3://AKIDX:SEC%20RETKEY@bucket/x").at("bucket/x") == "s3://AKIDX:SEC%20RETKEY@bucket/x"
    told = "s3://bucket: no such bucket; ask me@example.org"
    assert mask_credentials(told) == told
