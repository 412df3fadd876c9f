"""The store on S3-compatible storage, on an endpoint on loopback: the same verbs, the same numbers."""

import json
import subprocess
import sys
import threading
import urllib.request
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import DATA, FEW, NIGHTS, correct, land
from processes import run
from pyarrow import fs

from streameval import Store, evaluate
from streameval.errors import FormatError, StoreError
from streameval.store.files.location import Location, check_conditional_writes, sign_request

SERVER = """
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def endpoint():
    """An empty object store in a separate process, since deltalake holds the interpreter while it waits."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"  # the port that the system gave, once it is open
        server.terminate()


@pytest.fixture
def bucket(endpoint):
    """An endpoint with a new bucket, and how both libraries reach it."""
    reset = urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")  # noqa: S310 - on loopback
    urllib.request.urlopen(reset).close()  # noqa: S310 - likewise
    host = endpoint.removeprefix("http://")
    disk = fs.S3FileSystem(
        access_key="k",
        secret_key="s",  # noqa: S106 - nobody's
        endpoint_override=host,
        scheme="http",
        allow_bucket_creation=True,
        region="us-east-1",
    )
    disk.create_dir("nights")
    options = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
    }
    return disk, options, f"?endpoint_override={host}&scheme=http&region=us-east-1"


def upload(disk, folder, name):
    """Put a night's file into the bucket."""
    disk.create_dir(f"nights/data/{name}")
    with disk.open_output_stream(f"nights/data/{name}/part-0.parquet") as target:
        target.write((folder / name / "part-0.parquet").read_bytes())


def test_nights_on_an_object_store(bucket, tmp_path):
    """Night by night, one replaced and one removed: data and store in the bucket, numbers as on a disk.

    The tenth commit has a checkpoint.
    """
    disk, options, query = bucket
    data, nights = f"s3://k:s@nights/data{query}", NIGHTS[:8]
    store = Store("s3://nights/store", storage_options=options)
    for name in nights:
        upload(disk, DATA, name)
        assert store.update(data, **FEW).new == (name,)
    whole = evaluate([DATA / name for name in nights], **FEW).to_json()
    assert store.evaluate().to_json() == whole
    land(nights[5], tmp_path)
    correct(nights[5], tmp_path)
    upload(disk, tmp_path, nights[5])
    assert store.replace(f"s3://k:s@nights/data/{nights[5]}{query}").changed == (nights[5],)
    store.remove(nights[3])
    assert any(
        "checkpoint" in file.path for file in disk.get_file_info(fs.FileSelector("nights/store/ledger/_delta_log"))
    )
    rest = [tmp_path / name if name == nights[5] else DATA / name for name in nights if name != nights[3]]
    assert store.evaluate().value("roc_auc", "score_lr") == evaluate(rest, **FEW).value("roc_auc", "score_lr")
    assert store.evaluate(as_of=7).to_json() == whole
    assert store.update(data).new == (nights[3],)
    assert len(store.history("aul", "cluster_loose").points) == 8
    assert store.vacuum(grace="0s").deleted == 0


def test_two_updates_at_once_in_a_bucket(bucket, monkeypatch):
    """The object store refuses the second commit of a version."""
    disk, options, query = bucket
    for name in NIGHTS[:2]:
        upload(disk, DATA, name)
    one, other = (Store("s3://nights/store", storage_options=options) for _ in range(2))
    one.update(f"s3://k:s@nights/data/{NIGHTS[0]}{query}", score="score_lr")
    stale = other._context.ledger.read()
    one.update(f"s3://k:s@nights/data/{NIGHTS[1]}{query}")
    monkeypatch.setattr(other._context.ledger, "read", lambda *_: stale)
    with pytest.raises(StoreError, match="run it again"):
        other.update(f"s3://k:s@nights/data/{NIGHTS[1]}{query}")


class Forgetful(BaseHTTPRequestHandler):
    """Passes requests on, without their condition."""

    protocol_version = "HTTP/1.1"
    upstream = ""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answer(self) -> None:
        """Ask the server that knows conditions."""
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding"):
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        drop = {"if-none-match", "content-length", "connection", "transfer-encoding"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in drop}
        connection = HTTPConnection(self.upstream)
        connection.request(self.command, self.path, content, headers)
        told = connection.getresponse()
        found = told.read()
        self.send_response(told.status)
        length = told.headers["Content-Length"] if self.command == "HEAD" else str(len(found))
        for name, value in [*told.headers.items(), ("content-length", length or "0")]:
            if name.lower() not in {"transfer-encoding", "connection", "date", "server"} and name != "Content-Length":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(found)
        connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - names of the standard library


def test_storage_that_ignores_conditions_is_refused_at_the_first_commit(bucket, endpoint):
    """Two updates of one version would both succeed there; nothing is left of the question."""
    disk, options, query = bucket
    upload(disk, DATA, NIGHTS[0])
    handler = type("Handler", (Forgetful,), {"upstream": endpoint.removeprefix("http://")})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        forgetful = f"http://127.0.0.1:{server.server_port}"
        store = Store("s3://nights/store", storage_options=options | {"AWS_ENDPOINT_URL": forgetful})
        with pytest.raises(
            StoreError, match=rf"{forgetful} ignores the condition If-None-Match.*nothing was committed"
        ):
            store.update(f"s3://k:s@nights/data/{NIGHTS[0]}{query}", score="score_lr")
        server.shutdown()
    files = [file.path for file in disk.get_file_info(fs.FileSelector("nights/store", recursive=True)) if file.is_file]
    assert not [path for path in files if "_delta_log" in path or ".condition" in path]


def answering(*statuses: int) -> ThreadingHTTPServer:
    """An endpoint that answers with these statuses, and keeps the authorizations."""
    left = list(statuses)

    class Answering(BaseHTTPRequestHandler):
        asked: ClassVar[list[str]] = []

        def do_PUT(self) -> None:
            self.asked.append(self.headers["authorization"])
            self.send_response(left.pop(0))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

        do_DELETE = do_PUT  # noqa: N815 - likewise

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.mark.parametrize("statuses", [(403, 403, 403), (200, 403, 403)])
def test_an_endpoint_that_denies_the_question_is_named_in_a_warning(statuses, monkeypatch, caplog):
    """Its policy says nothing about conditions; the question is signed for the region of the environment."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-7")
    with answering(*statuses) as server:
        options = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}
        options |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        check_conditional_writes(
            Location("s3://b/store/ledger", "s3://b/store/ledger", "b/store/ledger", None, options)
        )
        server.shutdown()
    assert "does not tell whether it honours If-None-Match: status 403" in caplog.text
    assert "/eu-north-7/s3/" in server.RequestHandlerClass.asked[0]


@given(st.text(st.characters(codec="utf-8", exclude_characters="?#\0"), min_size=1, max_size=9), st.booleans())
def test_requests_are_signed_as_amazon_says(name, token):
    """A request of any name, with and without a session, has the signature of Amazon's own client."""
    auth, awsrequest, credentials = (
        pytest.importorskip(f"botocore.{part}") for part in ("auth", "awsrequest", "credentials")
    )
    url, session = f"http://127.0.0.1:9000/bucket/{quote(name, safe='~')}/object", "session" if token else ""
    sent = sign_request("PUT", url, "key", "secret", session, "eu-west-1", condition=True)
    headers = {name: value for name, value in sent.items() if name in ("x-amz-content-sha256", "if-none-match")}
    request = awsrequest.AWSRequest("PUT", url, headers, b"")
    signer = auth.S3SigV4Auth(credentials.Credentials("key", "secret", session or None), "s3", "eu-west-1")
    request.context["timestamp"] = sent["x-amz-date"]
    request.headers["X-Amz-Date"] = sent["x-amz-date"]
    if token:
        request.headers["X-Amz-Security-Token"] = session
    canonical = signer.canonical_request(request)
    expected = signer.signature(signer.string_to_sign(request, canonical), request)
    assert sent["authorization"].endswith(f"Signature={expected}")


def test_the_command_line_reaches_a_bucket(bucket):
    """With options, or with a URI that has them; a state that is gone is named without credentials."""
    disk, options, query = bucket
    upload(disk, DATA, NIGHTS[0])
    words = [word for key, value in options.items() for word in ("--storage", f"{key}={value}")]
    data = f"s3://k:s@nights/data{query}"
    done = run("update", "s3://nights/store", data, "--score", "score_lr", *words)
    assert done.exit_code == 0, done.stderr
    done = run("update", f"s3://k:s@nights/store{query}", data)
    assert done.stderr.startswith("s3://nights/store: nothing new: 1 unchanged")
    done = run("show", f"s3://k:s@nights/store{query}", "--json", "-", "--metric", "roc_auc")
    assert json.loads(done.stdout) == evaluate(DATA / NIGHTS[0], score="score_lr", metrics="roc_auc").to_dict()
    for verb, *more in (["evaluate"], ["attribute", "--cluster", "cluster_loose"]):  # the ? of a URI is no wildcard
        done = run(verb, f"s3://k:s@nights/store{query}", *more, "--json", "-")
        assert "is a store, not data" not in done.stderr
        assert done.exit_code == (2 if more else 0), done.stderr  # it keeps no clusters
    disk.delete_dir("nights/store/states")
    with pytest.raises(FormatError, match=r"^night=.*: s3://nights/store/states/.*no longer exists"):
        Store("s3://nights/store", storage_options=options).evaluate(metrics="agc")


def test_no_file_of_a_store_has_the_credentials_of_its_uris(bucket):
    """Nor have the results, a page, or the objects that hold the store; a secret has any characters."""
    disk, _, query = bucket
    upload(disk, DATA, NIGHTS[0])
    data, store = (f"s3://AKIDX:SEC%2FRETKEY%40%2B%25@nights/{name}{query}" for name in ("data", "store"))
    opened = Store(store, threads=1)
    opened.update(data, score="score_lr")
    found = opened.evaluate()
    told = [found.to_json(), repr(found), repr(vars(found)), repr(opened.history("roc_auc")), repr(opened._context)]
    told += [found.to_html().replace("<wbr>", ""), repr(opened.check("roc_auc > 0")), repr(opened.partitions())]
    files = [file.path for file in disk.get_file_info(fs.FileSelector("nights/store", recursive=True)) if file.is_file]
    assert len(files) >= 5
    told += [disk.open_input_file(path).read().decode("latin1") for path in files]
    assert not [part for text in told for part in ("AKIDX", "RETKEY") if part in text]
