"""Conditional writes: whether an S3-compatible endpoint honours ``If-None-Match: *``.

A commit is put under the condition that it does not exist. An endpoint that ignores the condition lets a second update
of one version replace the first, and both end well. So before its first commit to such an endpoint, a process puts one
object twice: the second request must be refused. Amazon S3 honours the condition; other endpoints are asked.

The requests are signed here (AWS Signature Version 4), because neither Arrow nor deltalake offers a conditional write
of one object. Without keys in the options or the environment (those of a profile or an instance role are not looked
up), requests cannot be signed and the endpoint is not asked. An endpoint that denies the question, as its policy allows
no such object, is named in a warning.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import urllib.error
import urllib.request
import uuid
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from streameval.errors import StoreError

if TYPE_CHECKING:
    from streameval.store.files.location import Location

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
        msg = (
            f"{location.name}: {endpoint} ignores the condition If-None-Match, so of two updates at once one would be "
            "lost; nothing was committed: keep the store on storage with conditional writes, or on a local disk"
        )
        raise StoreError(msg)


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
        msg = f"{urlsplit(url).netloc} answers conditional writes with the statuses {first} and {second}"
        raise OSError(msg)
    return second in _REFUSED


def signed(method: str, url: str, key: str, secret: str, token: str, region: str, *, condition: bool) -> dict[str, str]:
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
    said = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature.hex()}"
    return headers | {"authorization": said}


def _status(method: str, url: str, *keys: str, condition: bool) -> int:
    """The status of a signed request without content."""
    headers = signed(method, url, *keys, condition=condition)
    request = urllib.request.Request(url, b"" if method == "PUT" else None, headers, method=method)  # noqa: S310 - given
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - the endpoint that was given
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code)
