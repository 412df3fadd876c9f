"""Object storage: a real S3 endpoint on loopback, read by threads and by a cluster."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from moto.server import DomainDispatcherApplication, create_backend_app
from processes import run
from pyarrow import fs
from refusals import refuses
from werkzeug.serving import WSGIRequestHandler, make_server

from streameval import evaluate
from streameval.errors import CorruptFileError, DataError, MissingInputError
from streameval.evaluation.result import Evaluation
from streameval.scan import Where, plan, prune, read
from streameval.scan.parquet import footers
from streameval.store.nights.partitions import discover, fingerprint

FILES, ROWS = 4, 20_000


class Quiet(WSGIRequestHandler):
    """Serves without a log."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - the name is werkzeug's
        """Say nothing."""


class Counting:
    """The application, which counts the bytes it serves and refuses those that it is told to.

    A request that is sent again, because its answer took more than three seconds or its connection was lost, is still
    one: what is sent again has the same invocation id, and may arrive after a later request.
    """

    def __init__(self, app: Callable[..., Any]) -> None:
        self.app = app
        self.served = 0
        self.gets: Counter[str] = Counter()
        self.heads: Counter[str] = Counter()
        self.listed: set[str] = set()  # prefixes
        self.refuse: dict[str, range] = {}
        self.short: Callable[[str, int], int] | None = None  # bytes of an answer that are left out
        self.cuts_listings = False  # or of objects
        self.after: Callable[[str], None] | None = None  # called when an object has been read from
        self.seen: set[str] = set()  # invocation ids
        self.lock = threading.Lock()  # requests come side by side

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        """Answer a request."""
        get, head = (environ["REQUEST_METHOD"] == method for method in ("GET", "HEAD"))
        invocation = environ.get("HTTP_AMZ_SDK_INVOCATION_ID", uuid4().hex)  # deltalake's client sends none
        path = environ["PATH_INFO"]
        with self.lock:
            first = invocation not in self.seen
            self.seen.add(invocation)
            self.gets[path] += get and first
            self.heads[path] += head and first
            self.listed.update(parse_qs(environ["QUERY_STRING"]).get("prefix", [""]) if get else [])
            refused = get and self.gets[path] in self.refuse.get(path, ())
        if refused:
            start("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"refused"]

        def counted(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            with self.lock:
                sizes = (int(value) for name, value in headers if name.lower() == "content-length")
                self.served += sum(sizes) * (get and first)
            return start(status, headers, *more)

        if get and self.short and ("list-type" in environ["QUERY_STRING"]) == self.cuts_listings:
            return self.shortened(environ, start)
        answer = self.app(environ, counted)
        if get and self.after:
            self.after(path)
        return answer

    def shortened(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        """The answer without its end, and with the length that it then has."""
        told: list[Any] = []

        def keep(*args: Any) -> None:
            told.extend(args)

        body = b"".join(self.app(environ, keep))
        body = body[: len(body) - self.short(environ["PATH_INFO"], len(body))]
        headers = [(name, value) for name, value in told[1] if name.lower() != "content-length"]
        start(told[0], [*headers, ("Content-Length", str(len(body)))])
        return [body]


@pytest.fixture(scope="module")
def environment() -> Iterator[None]:
    """Credentials where everyone looks for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="module")
def server(environment: None) -> Iterator[tuple[Counting, str]]:  # noqa: ARG001 - it comes first
    """The endpoint with some objects, and the options of its URIs."""
    app = Counting(DomainDispatcherApplication(create_backend_app))
    made = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    query = f"?endpoint_override=http://127.0.0.1:{made.server_port}&region=us-east-1"
    store, _ = fs.FileSystem.from_uri(f"s3://bucket{query}&allow_bucket_creation=true")
    store.create_dir("bucket")
    for i in range(FILES):
        pq.write_table(table(i), f"bucket/scores/night={i}/part.parquet", filesystem=store, row_group_size=ROWS // 2)
    yield app, query
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(scope="module")
def client(environment: None) -> Iterator[Any]:  # noqa: ARG001 - workers inherit it
    """A client of two processes, which have the credentials."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="1GiB"
        ) as made,
        distributed.Client(made, set_as_default=False) as found,
    ):
        yield found


def table(number: int) -> pa.Table:
    """One object: a score, a label, and a column larger than both that nobody asks for."""
    rng = np.random.default_rng(number)
    label = rng.random(ROWS) < 0.3
    text = [value.hex() for value in rng.random(ROWS).tolist()]
    return pa.table({"label": label, "score": rng.random(ROWS) + 0.2 * label, "text": [4 * value for value in text]})


@cache
def expected() -> str:
    """The JSON of the same rows in memory."""
    return evaluate(pa.concat_tables(table(i) for i in range(FILES)).drop(["text"]), score="score", threads=1).to_json()


def test_a_uri_with_options_is_read_by_threads_and_by_a_cluster(server: tuple[Counting, str], client: Any) -> None:
    """A directory and patterns, the endpoint in the URI, the credentials in the environment."""
    for name, where in (("", {"threads": 2}), ("night=*/part.parquet", {"client": client}), ("**", {"threads": 2})):
        assert evaluate(f"s3://bucket/scores/{name}{server[1]}", score="score", **where).to_json() == expected()


def test_storage_options_stand_beside_the_data(server: tuple[Counting, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """``--storage`` says on the command line what a URI or the environment may say; `evaluate` and `sketch` take it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    endpoint = server[1].partition("endpoint_override=")[2].partition("&")[0]
    options = [
        f"AWS_ENDPOINT_URL={endpoint}",
        "AWS_ACCESS_KEY_ID=te/st",
        "AWS_SECRET_ACCESS_KEY=t@est",
        "AWS_REGION=eu",
    ]
    storage = [word for option in options for word in ("--storage", option)]
    data = "s3://bucket/scores/night=*/part.parquet"
    done = run("evaluate", data, "--score", "score", "--json", "-", "--quiet", *storage)
    assert json.loads(done.stdout)["results"] == json.loads(expected())["results"]
    done = run("sketch", data, "--column", "score", *storage)
    assert (done.exit_code, str(FILES * ROWS) in done.stdout.replace(",", "")) == (0, True), done.output
    done = run("evaluate", "here", "--score", "score", *storage)
    assert "--storage would change nothing: no input is on S3" in done.output


def test_only_the_columns_asked_for_are_read(server: tuple[Counting, str], client: Any) -> None:
    """Bytes served are those of the two columns and the footers, each read at most four times."""
    app, query = server
    store, _ = fs.FileSystem.from_uri(f"s3://bucket{query}")
    footers = [pq.read_metadata(f"bucket/scores/night={i}/part.parquet", filesystem=store) for i in range(FILES)]
    groups = [footer.row_group(g) for footer in footers for g in range(footer.num_row_groups)]
    columns = sum(group.column(i).total_compressed_size for group in groups for i in (0, 1))
    overhead = FILES * (4 * (64 << 10))  # a footer is read with up to 64 KiB before it
    app.served = 0
    evaluate(f"s3://bucket/scores/{query}", score="score", client=client)
    assert columns <= app.served <= 2 * columns + overhead
    assert app.served < sum(group.total_byte_size for group in groups) / 2


def test_planning_asks_every_object_once(server: tuple[Counting, str]) -> None:
    """Sizes are those of the listing: a footer is one request."""
    app, query = server
    app.gets, app.heads = Counter(), Counter()
    plan(f"s3://bucket/scores/{query}", ["label", "score"])
    objects = [f"/bucket/scores/night={i}/part.parquet" for i in range(FILES)]
    assert [(app.gets[path], app.heads[path]) for path in objects] == [(1, 0)] * FILES


def test_nights_are_found_without_a_request_for_each(server: tuple[Counting, str]) -> None:
    """However many a store has: the listing tells sizes and times; only the objects of new nights are asked."""
    app, query = server
    app.gets, app.heads = Counter(), Counter()
    found = discover(f"s3://bucket/scores/{query}")
    objects = [f"/bucket/scores/night={i}/part.parquet" for i in range(FILES)]
    assert len(found) == FILES
    assert all(partition.bytes > 0 for partition in found)
    assert [(app.gets[path], app.heads[path]) for path in objects] == [(0, 0)] * FILES
    assert [fingerprint(partition.files)[0] for partition in found] == [partition.fingerprint for partition in found]


@pytest.mark.parametrize("missing", [1, 7, 16, 5000])
def test_short_answers_are_found(server: tuple[Counting, str], monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """Whatever is missing at the end of an answer that claims to be whole: asked for again, then an error by name."""
    app, query = server
    uri = f"s3://bucket/scores/{query}"
    monkeypatch.setattr(footers, "GATHER_ROWS", ROWS // 2)
    answers: Counter[str] = Counter()

    def seldom(path: str, size: int) -> int:
        answers[path] += 1
        return missing if answers[path] % 3 == 0 and size > missing else 0

    app.short = seldom
    try:
        try:
            assert evaluate(uri, score="score", threads=1).to_json() == expected()
        except CorruptFileError as error:
            assert "s3://bucket/scores/night=" in str(error)  # noqa: PT017 - right or refused
        app.short = None
        scan = plan(uri, ["label", "score"])
        app.short = lambda _, size: missing if size > missing else 0
        with pytest.raises(CorruptFileError, match=r"night=0/part.parquet: .*answered with fewer than the"):
            list(read(scan.pieces[0], scan.schema))
        condition = Where.of("score > 2").bound(scan.schema)
        with pytest.raises(CorruptFileError, match=r"night=0/part.parquet: .*answered with fewer than the"):
            list(read(prune(scan, condition)[0].pieces[0], scan.schema))  # statistics that cannot be read prune nothing
    finally:
        app.short = None


@pytest.mark.parametrize("missing", [1, 20, 400])
def test_a_listing_that_is_cut_short_is_refused(server: tuple[Counting, str], missing: int) -> None:
    """Files are never left out because the answer that lists them ends early."""
    app, query = server
    app.cuts_listings, app.short = True, lambda _, size: min(missing, size)
    try:
        with pytest.raises((MissingInputError, CorruptFileError, DataError), match="s3://bucket/scores"):
            evaluate(f"s3://bucket/scores/{query}", score="score", threads=1)
    finally:
        app.cuts_listings, app.short = False, None


def test_objects_that_change_while_they_are_read(server: tuple[Counting, str]) -> None:
    """An object of the same size that takes the place of another, in the same second: its ETag tells."""
    query = server[1]
    store, _ = fs.FileSystem.from_uri(f"s3://bucket{query}")
    one, two = (pa.table({"label": [0, 1], "score": [x, 0.5]}) for x in (0.2, 0.3))
    for how in ("replaced", "removed"):
        pq.write_table(one, "bucket/changing/a.parquet", filesystem=store)
        scan = plan(f"s3://bucket/changing/{query}", ["label", "score"])
        batches = read(scan.pieces[0], scan.schema, 1)
        next(batches)
        if how == "replaced":
            pq.write_table(two, "bucket/changing/a.parquet", filesystem=store)
        else:
            store.delete_file("bucket/changing/a.parquet")
        refuses(CorruptFileError, rf"s3://bucket/changing/a.parquet: it was {how}", list, batches)


def test_a_delta_table_in_a_bucket(server: tuple[Counting, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log says what counts, below it too, with the options of the URI or those of the DeltaTable."""
    query = server[1]
    options = {
        "AWS_ENDPOINT_URL": query.partition("endpoint_override=")[2].partition("&")[0],
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    for number in (0, 1):
        data = table(number).append_column("night", pa.array(["x", "y"] * (ROWS // 2)))
        write_deltalake("s3://bucket/lake/t", data, mode="overwrite", partition_by=["night"], storage_options=options)
    for name in ("lake/t", "lake", "lake/*", "lake/t/night=?"):
        assert evaluate(f"s3://bucket/{name}{query}", score="score", threads=1).rows == ROWS
    assert evaluate(f"s3://bucket/lake/t/night=x{query}", score="score", threads=1).rows == ROWS // 2
    assert plan(f"s3://bucket/lake/t{query}", ["score"], delta_version=0).rows == ROWS
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    delta = DeltaTable("s3://bucket/lake/t", storage_options=options)
    assert evaluate(delta, score="score", threads=1).rows == ROWS
    assert "test" not in plan(delta, ["score"]).pieces[0].name


def test_objects_without_a_suffix(server: tuple[Counting, str]) -> None:
    """One object of each kind of name is opened to see whether it is Parquet; what is not is named."""
    app, query = server
    store, _ = fs.FileSystem.from_uri(f"s3://bucket{query}")
    for i in range(3):
        pq.write_table(table(i), f"bucket/hive/night={i}/00000{i}_0", filesystem=store)
    for name, content in (("README.txt", b"about"), ("night=1_$folder$", b""), ("night=0/_SUCCESS", b"")):
        with store.open_output_stream(f"bucket/hive/{name}") as sink:
            sink.write(content)
    app.gets.clear()
    found = discover(f"s3://bucket/hive{query}")
    assert [partition.name for partition in found] == ["night=0", "night=1", "night=2"]
    assert {path for path, count in app.gets.items() if "hive/" in path and count} == {
        "/bucket/hive/README.txt", "/bucket/hive/night=2/000002_0",
    }  # fmt: skip
    told = evaluate(f"s3://bucket/hive{query}", score="score", metrics=["roc_auc"])
    assert (told.rows, [name for name, _ in told.skipped]) == (3 * ROWS, ["s3://bucket/hive/README.txt"])


def test_trees_of_one_bucket_are_listed_apart(server: tuple[Counting, str]) -> None:
    """What lies beside them may be millions of objects."""
    app, query = server
    store, _ = fs.FileSystem.from_uri(f"s3://bucket{query}")
    pq.write_table(table(0).slice(0, 10), "bucket/more/day=1/part.parquet", filesystem=store)
    app.listed = set()
    found = discover([f"s3://bucket/{name}/{query}" for name in ("scores", "more")])
    assert [partition.name for partition in found] == ["day=1", *(f"night={i}" for i in range(FILES))]
    objects = {
        prefix for prefix in app.listed if "_delta_log" not in prefix and not prefix.startswith((".", "metadata"))
    }
    assert all(prefix.startswith(("scores/", "more/")) for prefix in objects), objects


@pytest.mark.parametrize(
    "kinds", [["plain", "clash"], ["clash", "plain"], ["plain", "missing"], ["missing", "plain"], ["text", "plain"]]
)
def test_types_that_clash_give_the_error_of_a_plan_that_knows_them(
    server: tuple[Counting, str], client: Any, tmp_path: Path, kinds: list[str]
) -> None:
    """The error names the file and the column, as on a local disk."""
    plain = table(0).slice(0, 100).append_column("cluster", pa.array(range(100), pa.int32()))
    found = {
        "plain": plain,
        "clash": plain.set_column(3, "cluster", plain["cluster"].cast(pa.string())),
        "missing": plain.drop(["score"]),
        "text": plain.set_column(1, "score", plain["score"].cast(pa.string())),
    }
    store, _ = fs.FileSystem.from_uri(f"s3://bucket{server[1]}")
    place = f"bucket/{'-'.join(kinds)}"
    for i, kind in enumerate(kinds):
        pq.write_table(found[kind], f"{place}/part-{i}.parquet", filesystem=store)
        pq.write_table(found[kind], tmp_path / f"part-{i}.parquet")
    with pytest.raises(DataError) as known:
        evaluate(str(tmp_path), score="score", cluster="cluster", threads=1)
    for where in ({"threads": 2}, {"client": client}):
        with pytest.raises(type(known.value)) as caught:
            evaluate(f"s3://{place}/{server[1]}", score="score", cluster="cluster", **where)
        assert str(caught.value).replace(f"s3://{place}", str(tmp_path)) == str(known.value)


def test_an_object_that_fails_twice_is_read_the_third_time(server: tuple[Counting, str], client: Any) -> None:
    """A read that is refused is tried again by the cluster; one that always is, is named or left out."""
    app, query = server
    uri, path = f"s3://bucket/scores/{query}", "/bucket/scores/night=3/part.parquet"

    def run(refused: int, **options: Any) -> Evaluation:
        app.refuse, app.gets = {}, Counter()
        plan(uri, ["label", "score"])
        first = app.gets[path] + 1  # after the plan of the run itself
        app.refuse, app.gets = {path: range(first, first + refused)}, Counter()
        return evaluate(uri, score="score", client=client, **options)

    assert run(2).to_json() == expected()
    refuses(CorruptFileError, r"^s3://bucket/scores/night=3/part.parquet: ", run, 3)
    found = run(6, on_error="skip")  # three times among others, three times alone
    assert (found.rows, [name for name, _ in found.skipped]) == (3 * ROWS, ["s3://bucket/scores/night=3/part.parquet"])
    app.refuse = {}


def test_a_bucket_that_is_not_there_is_named(server: tuple[Counting, str]) -> None:
    """The error has the URI without its options."""
    with pytest.raises((MissingInputError, CorruptFileError), match=r"^s3://nowhere/x: "):
        evaluate(f"s3://nowhere/x{server[1]}", score="score", threads=1)
