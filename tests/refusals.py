"""Calls that must be refused."""

from collections.abc import Callable
from typing import Any

import pytest


def refuses(error: type[BaseException], message: str, call: Callable[..., Any], /, *given: Any, **options: Any) -> str:
    """The message of the error that a call must raise: one line, in which the pattern, if any, is found."""
    with pytest.raises(error, match=message or None) as caught:
        call(*given, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text
