"""URIs of storage: Google's is given up within seconds, where its client tries for minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyarrow import fs

from streameval.scan.faults import unreadable
from streameval.scan.files.uris import PATIENCE, Uri


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("gs://bucket/scores", PATIENCE),
        ("gs://anonymous@bucket/scores?scheme=http", PATIENCE),
        ("gcs://bucket/scores?retry_limit_seconds=120", 120),
    ],
)
def test_requests_are_repeated_for_some_seconds(text: str, seconds: int) -> None:
    """Unless the URI says for how long."""
    uri = Uri.parse(text)
    assert uri is not None
    filesystem, path = fs.FileSystem.from_uri(uri.opening(uri.path))
    assert filesystem.__reduce__()[1][0]["retry_time_limit"] == timedelta(seconds=seconds)
    assert path == "bucket/scores"


def test_other_storage_is_opened_as_it_is_named() -> None:
    """Its options are its own."""
    uri = Uri.parse("s3://bucket/scores?region=eu")
    assert uri is not None
    assert uri.opening(uri.path) == "s3://bucket/scores?region=eu"


def test_silence_is_told_with_its_cause_and_what_to_do() -> None:
    """What the client says has a kilobyte, most of it about itself."""
    said = (
        "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of PerformWork() - CURL error "
        "[6]=Could not resolve hostname error_info={reason=, domain=, metadata={gcloud-cpp.retry.on-entry=false}})"
    )
    assert str(unreadable("gs://bucket/scores", OSError(said))) == (
        "gs://bucket/scores: the storage does not answer: PerformWork() - CURL error [6]=Could not resolve hostname; "
        "check the network and the credentials, or wait longer with ?retry_limit_seconds=120 in the URI"
    )
