"""The directory of a store, on a local disk or in an object store, for both pyarrow and deltalake.

One set of options configures both. The names are those of deltalake: ``AWS_ENDPOINT_URL``, ``AWS_REGION``,
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, ``AWS_ALLOW_HTTP``. Options that are not given
are taken from the environment. A URI may carry the same options in pyarrow's syntax:
``s3://key:secret@bucket/store?endpoint_override=http://127.0.0.1:5000``.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from streameval.errors import OptionError
from streameval.scan.files.tables import misread
from streameval.scan.files.uris import Uri, local_path
from streameval.unfinished import make_folder, publish, unfinished

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        found = cls._of(where, options)
        odd = misread(found.path) or next((c for c in "#?" if c in found.path), "")  # it finds no commits beyond them
        if odd:
            why = f"a store cannot have {odd!r} in its path, which deltalake takes for something else"
            msg = f"{found.name}: {why}; choose another directory"
            raise OptionError(msg)
        return found

    @classmethod
    def _of(cls, where: str | os.PathLike[str], options: Mapping[str, str] | None) -> Location:
        text = os.fspath(where)
        uri = Uri.parse(text)
        if uri is None or uri.scheme == "file":
            path = Path(os.path.normpath(local_path(text)))
            return cls(text, str(path), path.as_posix(), fs.LocalFileSystem(), dict(options or {}))
        if not uri.on_s3:
            msg = f"{uri.name}: a store is on a local disk or on S3-compatible storage (s3://bucket/path)"
            raise OptionError(msg)
        return _s3(uri, {key.upper(): value for key, value in (options or {}).items()})

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
