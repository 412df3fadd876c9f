"""The directory of a store, on a local disk or in an object store, for both pyarrow and deltalake.

One set of options configures both. The names are those of deltalake: ``AWS_ENDPOINT_URL``, ``AWS_REGION``,
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, ``AWS_ALLOW_HTTP``. Options that are not given
are taken from the environment. A URI may carry the same options in pyarrow's syntax:
``s3://key:secret@bucket/store?endpoint_override=http://127.0.0.1:5000``.

A store and its data are in separate directories, and a new store's directory holds nothing else.

*Conditional writes.* A commit is put under the condition that it does not exist. An S3-compatible endpoint that ignores
``If-None-Match: *`` would let a second update of one version replace the first, and both end well. So before its first
commit to such an endpoint, a process puts one object twice: the second request must be refused. The requests are signed
here (AWS Signature Version 4), because neither Arrow nor deltalake offers a conditional write of one object. Without
keys in the options or the environment, requests cannot be signed and the endpoint is not asked. An endpoint that denies
the question, as its policy allows no such object, is named in a warning.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from pyarrow import fs

from streameval.errors import OptionError, StoreError
from streameval.saving import make_folder, publish, unfinished
from streameval.scan.files.tables import misread
from streameval.scan.files.uris import Uri, local_path, mask_uri
from streameval.wording import few

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Location:
    """A directory or file of a store.

    Attributes
    ----------
    name : name for messages, without credentials
    uri : path or URI for deltalake
    path : path on `filesystem`
    filesystem : pyarrow.fs.FileSystem
    options : deltalake's storage options

    Examples
    --------
    >>> Location.of("/data/store").child("ledger").uri
    '/data/store/ledger'
    >>> Location.of("s3://key:secret@bucket/store?endpoint_override=http://127.0.0.1:9000&region=eu").name
    's3://bucket/store'
    """

    name: str
    uri: str
    path: str
    filesystem: Any = field(repr=False)
    options: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, where: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Location:
        """Parse a path or URI.

        Raises
        ------
        OptionError
            If it is neither on a local disk nor on S3, or deltalake would misread its path.
        """
        text = os.fspath(where)
        uri = Uri.parse(text)
        if uri is None or uri.scheme == "file":
            path = Path(os.path.normpath(local_path(text)))
            location = cls(text, str(path), path.as_posix(), fs.LocalFileSystem(), dict(options or {}))
        elif uri.on_s3:
            location = _s3(uri, {key.upper(): value for key, value in (options or {}).items()})
        else:
            raise OptionError(f"{uri.name}: a store is on a local disk or on S3-compatible storage (s3://bucket/path)")
        odd = misread(location.path) or next((c for c in "#?" if c in location.path), "")
        if odd:  # deltalake finds no commits beyond them
            why = f"a store cannot have {odd!r} in its path, which deltalake takes for something else"
            raise OptionError(f"{location.name}: {why}; choose another directory")
        return location

    @property
    def local(self) -> bool:
        """Whether it is on a local disk."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def child(self, name: str) -> Location:
        """A directory or file within this directory."""
        name_, uri, path = (f"{text.rstrip('/')}/{name}" for text in (self.name, self.uri, self.path))
        return replace(self, name=name_, uri=uri, path=path)

    def read(self) -> bytes:
        """The content of a small file."""
        with self.filesystem.open_input_file(self.path) as file:
            content: bytes = file.read()
        return content

    def write(self, content: bytes) -> None:
        """Write a small file, atomically and durably."""
        if not self.local:
            with self.filesystem.open_output_stream(self.path) as target:
                target.write(content)
            return
        path = Path(self.path)
        make_folder(path.parent)
        with unfinished(path.with_name(f".{uuid.uuid4().hex}.part")) as part:
            part.write_bytes(content)
            publish(part, path)


def _s3(uri: Uri, options: dict[str, str]) -> Location:
    """A location in a bucket; the URI takes precedence over the options."""
    if "AWS_ENDPOINT_URL" not in options and (endpoint := os.environ.get("AWS_ENDPOINT_URL")):
        options["AWS_ENDPOINT_URL"] = endpoint
    options = uri.storage_options(options)
    endpoint = options.get("AWS_ENDPOINT_URL")
    filesystem = fs.S3FileSystem(
        access_key=options.get("AWS_ACCESS_KEY_ID"),
        secret_key=options.get("AWS_SECRET_ACCESS_KEY"),
        session_token=options.get("AWS_SESSION_TOKEN"),
        region=options.get("AWS_REGION") or os.environ.get("AWS_REGION"),
        endpoint_override=endpoint,
        scheme=(endpoint or "https://").partition("://")[0],
    )
    path = uri.path.rstrip("/")
    return Location(f"s3://{path}", f"s3://{path}", path, filesystem, options)


PARTS = ("ledger", "states", "merged", "history", "checks")  # directories of a store
_TEMPORARY = (".crc", ".part", ".tmp")


def check_apart(location: Location, data: object) -> None:
    """Raise `OptionError` if a store lies in its data, or the data in the store.

    Parameters
    ----------
    location : location of the store
    data : paths, patterns or URIs
    """
    named = [data] if isinstance(data, str | os.PathLike) else data
    if not isinstance(named, list | tuple):
        return  # refused later, when the data are listed
    store = _place(location.uri, local=location.local)
    for text in (os.fspath(item) for item in named if isinstance(item, str | os.PathLike)):
        uri = Uri.parse(text)
        local = uri is None or uri.scheme == "file"
        if local != location.local:
            continue
        place = _place(text if uri is None or local else f"{uri.scheme}://{uri.path}", local=local)
        pattern = any(c in place for c in "*?[")
        if _within(PurePosixPath(place).parent.as_posix() if pattern else place, store):
            _refuse_place(location, f"the data {mask_uri(text)} lie in it")
        elif not pattern and _within(store, place):
            _refuse_place(location, f"it lies in its data {mask_uri(text)}")


def check_files(location: Location, paths: Iterable[str]) -> None:
    """Raise `OptionError` if files of the data lie in a store; `paths` are paths on the file system of the store."""
    start = f"{location.path.rstrip('/')}/"
    inside = next((path for path in paths if path.startswith(start)), None)
    if inside is not None:
        _refuse_place(location, f"{inside}, which the data name, lies in it")


def check_empty(location: Location) -> None:
    """Raise `OptionError` if the directory of a new store holds other files.

    Hidden files, and temporary files of other tools, are ignored.
    """
    selector = fs.FileSelector(location.path, allow_not_found=True)
    names = (PurePosixPath(info.path).name for info in location.filesystem.get_file_info(selector))
    visible = (name for name in names if not name.startswith((".", "_")) and not name.lower().endswith(_TEMPORARY))
    others = sorted(name for name in visible if name not in PARTS)
    if others:
        raise OptionError(f"{location.name}: holds other files ({few(others)}); give the store its own directory")


def _place(text: str, *, local: bool) -> str:
    """A comparable path: with symbolic links resolved, or starting with the bucket."""
    if local:
        return os.path.realpath(local_path(text))
    return "/" + text.partition("://")[2].partition("?")[0].rpartition("@")[2].strip("/")


def _within(path: str, directory: str) -> bool:
    """Whether a path is a directory, or in it."""
    return f"{path.rstrip('/')}/".startswith(f"{directory.rstrip('/')}/")


def _refuse_place(location: Location, why: str) -> None:
    raise OptionError(f"{location.name}: {why}; a store and its data must be in separate directories: move one of them")


_DONE = (200, 201, 204)
_REFUSED = (409, 412)  # statuses of a condition that does not hold
_DENIED = (401, 403, 405)  # statuses that say nothing about the condition
_SECONDS = 30.0
_LOGGER = logging.getLogger(__name__)
_NAMES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")


def check_conditional_writes(location: Location) -> None:
    """Raise `StoreError` if the endpoint of a bucket ignores ``If-None-Match``; asked once a process.

    Raises
    ------
    StoreError
        If two writes of one object both succeed.
    OSError
        If the endpoint cannot be reached, or refuses the first write.
    """
    options = {name: os.environ.get(name, "") for name in _NAMES}
    options["AWS_REGION"] = options["AWS_REGION"] or os.environ.get("AWS_DEFAULT_REGION", "")
    options |= location.options
    endpoint, *keys = (options.get(name, "") for name in _NAMES)
    if location.local or not endpoint or not all(keys[:2]):
        return
    bucket, _, table = location.path.partition("/")
    folder = table.rpartition("/")[0]  # that of the store, so that its tables ask once
    if not _honours(endpoint, bucket, folder, *keys):
        raise StoreError(
            f"{location.name}: {endpoint} ignores the condition If-None-Match, so of two updates at once one would be "
            "lost; nothing was committed: keep the store on storage with conditional writes, or on a local disk"
        )


@cache
def _honours(endpoint: str, bucket: str, folder: str, *keys: str) -> bool:
    """Whether the second of two conditional writes of one object is refused; the object is deleted again.

    True, with a warning, if the endpoint denies them for another reason.
    """
    url = f"{endpoint.rstrip('/')}/{bucket}/{quote(folder, safe='/~')}/.condition-{uuid.uuid4().hex}"
    first = _status("PUT", url, *keys, condition=True)
    try:
        second = _status("PUT", url, *keys, condition=True)
    finally:
        _status("DELETE", url, *keys, condition=False)
    if first in _DENIED or second in _DENIED:
        _LOGGER.warning("%s: does not tell whether it honours If-None-Match: status %d", endpoint, max(first, second))
        return True
    if first not in _DONE or second not in _DONE + _REFUSED:
        raise OSError(f"{urlsplit(url).netloc} answers conditional writes with the statuses {first} and {second}")
    return second in _REFUSED


def sign_request(
    method: str, url: str, key: str, secret: str, token: str, region: str, *, condition: bool
) -> dict[str, str]:
    """The headers of a signed request without content."""
    parts, now = urlsplit(url), datetime.now(UTC)
    nothing = hashlib.sha256(b"").hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": nothing, "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}"}
    headers |= {"if-none-match": "*"} if condition else {}
    headers |= {"x-amz-security-token": token} if token else {}
    names = ";".join(sorted(headers))
    lines = [method, parts.path, "", *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, nothing]
    scope = f"{now:%Y%m%d}/{region or 'us-east-1'}/s3/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    signature = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"):
        signature = hmac.digest(signature, part.encode(), "sha256")
    credentials = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature.hex()}"
    return headers | {"authorization": credentials}


def _status(method: str, url: str, *keys: str, condition: bool) -> int:
    """The status of a signed request without content."""
    headers = sign_request(method, url, *keys, condition=condition)
    request = Request(url, b"" if method == "PUT" else None, headers, method=method)  # noqa: S310 - the user named the endpoint
    try:
        with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - see above
            return int(answer.status)
    except HTTPError as error:
        with error:
            return int(error.code)
