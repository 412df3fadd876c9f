"""Functions with many options: one function declares the signature, another receives all options as a dict.

Callers, editors and type checkers see the full signature, and no code passes options on one by one.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["called_as", "gathered"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def gathered(
    function: Callable[[Any, dict[str, Any]], _Result],
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """A decorator that replaces a declared function by a call ``function(first_argument, options)``.

    `options` maps the names of all other arguments to their values, defaults included.

    Examples
    --------
    >>> @gathered(lambda data, options: (data, options))
    ... def fold(data, *, label="label", score=None):
    ...     "Only declares its arguments."
    >>> fold("night", score="a")
    ('night', {'label': 'label', 'score': 'a'})
    >>> fold("night", scores="a")
    Traceback (most recent call last):
    ...
    TypeError: fold() got an unexpected keyword argument 'scores'
    """

    def decorate(declared: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        signature = inspect.signature(declared)

        @functools.wraps(declared)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                msg = f"{declared.__name__}() {error}"
                raise TypeError(msg) from None
            bound.apply_defaults()
            first, *_ = bound.arguments
            return function(bound.arguments.pop(first), bound.arguments)

        return call

    return decorate


def called_as(other: Callable[_Arguments, Any]) -> Callable[[Callable[..., _Result]], Callable[_Arguments, _Result]]:
    """Give a function that takes ``**options`` the signature of another function."""

    def decorate(function: Callable[..., _Result]) -> Callable[_Arguments, _Result]:
        function.__signature__ = inspect.signature(other)  # type: ignore[attr-defined]  # PEP 362 reads it, typeshed lacks it
        return function

    return decorate
