"""Stores that somebody damaged or forged: refused with one clear error, in bounded time, nothing opened outside."""

from __future__ import annotations

import json
import random
import shutil
import time
import traceback
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from nightly import DATA, FEW, NIGHTS, forge, land

from streameval import Store, evaluate
from streameval.cli import main
from streameval.errors import DataError, FormatError, OptionError, StoreError, StreamevalError
from streameval.results import Scalar
from streameval.scan.files.uris import Uri
from streameval.store.files.delta import data_files
from streameval.store.files.entries import SCHEMA, Entry
from streameval.store.files.location import Location
from streameval.store.files.published import PublishedFiles, seal, unseal
from streameval.store.nights import fold
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
    for file in [path for path in files for _ in range(5)]:
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
    with pytest.raises(StoreError, match=r"cannot be written: .*Permission denied"):
        store.remove(NIGHTS[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_disk_that_fills_is_left_as_it_was(tmp_path, monkeypatch, threads):
    """States written before the disk was full belong to no version, and the next update needs their room."""
    store, rename = Store(tmp_path / "store", threads=threads), PublishedFiles._rename
    monkeypatch.setattr(fold, "SMALL", 0)  # nights are folded in parallel

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
            with pytest.raises(StoreError, match=r"cannot be written: .*No space left on device; nothing was"):
                verb()
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
        with pytest.raises(FormatError, match="not the name of a file of a store; it was not opened"):
            verb()
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
        with pytest.raises((StoreError, FormatError)):
            verb()


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
        with pytest.raises(FormatError, match="labels in the ledger are damaged"):
            store.evaluate()
    rows = pa.table({name: pa.array([{"a": 1}]) for name in SCHEMA.names})
    name, _ = PublishedFiles(store._context.ledger.location).publish(lambda sink: pq.write_table(rows, sink))
    reseal(tmp_path / "store", {"runs": [name]})
    with pytest.raises(StoreError, match="cannot be read"):
        store.evaluate()


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
        with pytest.raises(FormatError, match=r"states/[0-9a-f]{64}-[0-9a-f]{16}\.parquet: .* damaged"):
            verb()


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
        with pytest.raises(FormatError, match=r"in the ledger are damaged"):
            verb()


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
    found = CliRunner().invoke(main, words)
    assert found.exit_code in (1, 2)
    assert not [part for part in ("AKIDX", "RETKEY", "SEC") if part in found.output], found.output
    assert not list(tmp_path.iterdir())
