"""URIs with credentials and options, such as ``s3://key:secret@bucket/path?region=eu-west-1``.

Both inputs and stores parse URIs here, so they accept the same spellings, and neither shows a secret. A secret key of
S3 may contain ``/`` and ``@``; it is percent-encoded for pyarrow.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode

from streameval.errors import OptionError, mask_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

S3_OPTIONS = {"endpoint_override": "AWS_ENDPOINT_URL", "region": "AWS_REGION"}  # pyarrow's names, deltalake's names
_KEY_ID, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
URI_OPTIONS = (*S3_OPTIONS.values(), _KEY_ID, _SECRET, "AWS_ALLOW_HTTP")  # the last is implied by the endpoint

_GOOGLE, _PATIENCE = ("gs", "gcs"), "retry_limit_seconds"  # pyarrow's name
PATIENCE = 10  # seconds for which a request to Google's storage is retried; by default it is retried for minutes

_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://(.*?)(\?[\w.-]+=.*)?", re.DOTALL)
# neither a URI nor a likely path
_MISSPELT = re.compile(r"\s*([a-z][a-z0-9+.-]+\s*:\s*/|(s3a?|gc?s)\s*:).*@", re.DOTALL | re.IGNORECASE)
_WITH_PORT = ("hdfs", "viewfs")  # schemes of a host with a port, which is not a secret; a bucket has none
_PORT = re.compile(r":\d+(?:/|$)")
# A secret may contain / and @: it ends where the name of a bucket or host can begin.
_END = re.compile(r"@(?=[^/@]*(?:/|$))")
_BUCKET = re.compile(r"@[a-z0-9][a-z0-9._-]+[a-z0-9](?::\d+)?(?=/|$)", re.IGNORECASE)
_UNQUOTED = re.compile(r"[\s'\"]")  # what ends a URI in a text
_USUAL = 40  # characters of a secret of Amazon or Google


@dataclass(frozen=True)
class Uri:
    """The parts of a URI.

    Attributes
    ----------
    scheme : the scheme, such as ``s3``
    path : bucket or host, and path
    user, secret : credentials, decoded; None if the URI has none
    query : options with the question mark; empty if there are none

    Examples
    --------
    >>> uri = Uri.parse("s3://key:se/cret@bucket/scores/*.parquet?region=eu-west-1")
    >>> uri.name, uri.user, uri.options
    ('s3://bucket/scores/*.parquet', 'key', {'region': 'eu-west-1'})
    >>> uri.opening("bucket/scores")
    's3://key:se%2Fcret@bucket/scores?region=eu-west-1'
    """

    scheme: str
    path: str
    user: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    query: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> Uri | None:
        """The parts of a text; None if it is a plain path.

        Raises
        ------
        OptionError
            If a secret may end at more than one place or at none or has blanks or quotes, or a text with a secret is
            almost a URI.
        """
        found = _URI.fullmatch(text)
        if found is None:
            if _MISSPELT.match(text):
                raise OptionError(
                    f"{text.partition(':')[0].strip()}:… is neither a URI nor a path; write scheme://bucket/path"
                )
            return None
        scheme, rest, query = found.groups(default="")
        end = _secret_end(text, scheme, rest)
        if end is None:
            return cls(scheme, rest, query=query)
        user, colon, secret = rest[:end].partition(":")
        return cls(scheme, rest[end + 1 :], unquote(user), unquote(secret) if colon else None, query)

    @property
    def on_s3(self) -> bool:
        """Whether the URI names an object in S3-compatible storage."""
        return self.scheme in ("s3", "s3a")

    @property
    def name(self) -> str:
        """The URI for messages, without credentials and options."""
        return f"{self.scheme}://{self.path}"

    @property
    def options(self) -> dict[str, str]:
        """Options of the query."""
        return dict(parse_qsl(self.query[1:]))

    def storage_options(self, others: Mapping[str, str] | None = None) -> dict[str, str]:
        """Storage options in deltalake's spelling: those of the URI, which take precedence, and `others`.

        >>> Uri.parse("s3://bucket/x?endpoint_override=http://127.0.0.1:9000").storage_options()["AWS_ALLOW_HTTP"]
        'true'
        """
        given = self.options
        found = dict(others or {}) | {theirs: given[mine] for mine, theirs in S3_OPTIONS.items() if mine in given}
        if self.user:
            found |= {_KEY_ID: self.user, _SECRET: self.secret or ""}
        endpoint = found.get("AWS_ENDPOINT_URL")
        if endpoint and "://" not in endpoint:
            endpoint = found["AWS_ENDPOINT_URL"] = f"{given.get('scheme', 'https')}://{endpoint}"
        if endpoint and endpoint.startswith("http://"):
            found["AWS_ALLOW_HTTP"] = "true"
        return found

    def with_storage(self, options: Mapping[str, str]) -> str:
        """The URI with deltalake's storage options added; its own options take precedence.

        Raises
        ------
        OptionError
            If an option cannot be expressed in a URI.

        Examples
        --------
        >>> options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "aws_access_key_id": "key"}
        >>> Uri.parse("s3://bucket/*?region=eu").with_storage(options)
        's3://key:@bucket/*?endpoint_override=http%3A%2F%2F127.0.0.1%3A9000&region=eu'
        """
        given = {key.upper(): value for key, value in options.items()}
        other = next((key for key in given if key not in URI_OPTIONS), None)
        if other is not None:
            raise OptionError(f"{self.name}: storage option {other} cannot be part of a URI; set it in the environment")
        user, secret = (self.user, self.secret) if self.user else (given.get(_KEY_ID), given.get(_SECRET, ""))
        query = {mine: given[theirs] for mine, theirs in S3_OPTIONS.items() if theirs in given} | self.options
        made = replace(self, user=user, secret=secret if user else None, query=f"?{urlencode(query)}" if query else "")
        return made.at(self.path)

    def opening(self, path: str) -> str:
        """The URI of another path for pyarrow; for Google's storage, with a limit on the time of retries."""
        query = self.query
        if self.scheme in _GOOGLE and _PATIENCE not in self.options:
            query = f"{query}{'&' if query else '?'}{_PATIENCE}={PATIENCE}"
        return replace(self, query=query).at(quote(path, safe="/:%@+,;=~"))

    def at(self, path: str) -> str:
        """The URI with another path, which must already be quoted."""
        parts = [quote(part, safe="") for part in (self.user, self.secret) if part is not None]
        return f"{self.scheme}://{':'.join(parts)}{'@' if parts else ''}{path}{self.query}"


def _secret_end(text: str, scheme: str, rest: str) -> int | None:
    """Where the credentials of a URI end; None if it has none."""
    if scheme == "file":
        return None
    start = min((rest.find(c) for c in "/@:" if c in rest), default=len(rest))
    if not rest.startswith(":", start):
        return start if _END.match(rest, start) else None
    if scheme in _WITH_PORT and _PORT.match(rest, start):
        return None
    ends = [found.start() for found in _END.finditer(rest, start)]
    if not ends and not _PORT.match(rest, start) and not rest.startswith("["):
        remedy = "encode ? in it as %3F, or give it in the environment"
        raise OptionError(f"{scheme}://…: a secret is not followed by @ and a bucket or host; {remedy}")
    if ends and _UNQUOTED.search(rest, start, ends[-1]):
        remedy = "encode them as %20, %22 or %27, or give it in the environment"
        raise OptionError(f"{scheme}://…: a secret has a blank or a quote; {remedy}")
    likely = [end for end in ends if _BUCKET.match(rest, end)]
    if len(likely) > 1 and likely[0] - start <= _USUAL:
        raise OptionError(
            f"{mask_credentials(text)}: the secret may end at more than one @; give the credentials in the environment "
            f"({_KEY_ID}, {_SECRET})"
        )
    return next(iter(likely or ends[-1:]), None)


def local_path(text: str) -> Path:
    """An absolute path on the local disk; ``~`` is the home directory, ``~name`` that of a user if there is one.

    Raises
    ------
    OptionError
        If the text has a null byte, which no path has.
    """
    if "\0" in text:
        raise OptionError(f"{text!r}: a path cannot have a null byte; check it")
    path = Path(text.removeprefix("file://"))
    if text.startswith("~"):
        with suppress(RuntimeError):
            path = path.expanduser()
    return path.absolute()


def mask_uri(text: str) -> str:
    """A path or URI for messages, without credentials and options.

    >>> mask_uri("s3://key:secret@bucket/scores/*.parquet?region=eu-west-1")
    's3://bucket/scores/*.parquet'
    """
    try:
        uri = Uri.parse(text)
    except OptionError as error:
        return mask_credentials(text) if _UNQUOTED.search(text) is None else str(error).partition(":…")[0]
    return text if uri is None else uri.name
