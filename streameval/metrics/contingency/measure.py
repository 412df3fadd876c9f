"""A measure as data: its function, its range, which end is better; its meaning and source are in its docstring.

A measure is an attribute of a class of tables. Its descriptor makes it a method of every table, with the function's
signature and docstring, so `help`, editors and type checkers see an ordinary method.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

EXPECTED: Final = "its expected value under chance is only known for all classes together"
MATCHED: Final = "the best matching is only solved for all classes together"
NULL_MODEL: Final = "a null model corrects it, which is only known for all classes together"
GROWS: Final = "it grows with the rows, as totals and test statistics do"

HIGHER: Final = "higher"
LOWER: Final = "lower"


@dataclass(eq=False)
class Measure(Generic[P, T]):
    """One measure of a table.

    Parameters
    ----------
    function : callable
        From the statistics of a table, and options, to a number or a named tuple of numbers.
    low, high : float
        Range of the values at the default options.
    better : {"higher", "lower", None}
        Which end is better; None where neither is.
    elements : tuple of str
        Names of the values of a tuple, empty for a single number.
    default : bool
        Whether an evaluation computes it when no metric is picked.
    model : str, optional
        The null model that is fixed.
    of_pairs : bool
        Whether it is a function of pair counts alone; its sampling error then depends on squared class sizes.
    scale : str
        Scale of its sampling interval, a key of `streameval.metrics.estimates.SCALES`; by its range if empty.
    no_interval : str
        Why it has no sampling interval.
    counts : bool
        Whether its value is a number of rows or pairs unless it is normalized.
    """

    function: Callable[Concatenate[Any, P], T]
    low: float
    high: float
    better: Literal["higher", "lower"] | None = HIGHER
    elements: tuple[str, ...] = ()
    default: bool = False
    model: str | None = None
    of_pairs: bool = False
    scale: str = ""
    no_interval: str = ""
    counts: bool = False
    method: Callable[Concatenate[Any, P], T] = field(init=False, repr=False)

    def __set_name__(self, owner: Any, name: str) -> None:
        @wraps(self.function)
        def method(table: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self.function(getattr(table, owner.measured), *args, **kwargs)

        method.__name__, method.__qualname__ = name, f"{owner.__name__}.{name}"
        self.method = method

    @overload
    def __get__(self, table: None, owner: Any) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(self, table: object, owner: Any) -> Callable[P, T]: ...
    def __get__(self, table: object, owner: Any) -> Any:
        return self.method if table is None else MethodType(self.method, table)

    def takes(self, option: str) -> bool:
        """Whether the function has this option; measures with a fixed null model have no variants."""
        return self.model is None and option in inspect.signature(self.function).parameters

    @property
    def meaning(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each of several values means: the lines of the docstring's section on what it returns."""
        _, _, after = (inspect.getdoc(self.function) or "").partition("Returns\n-------\n")
        lines = after.partition("\n\n")[0].splitlines() if self.elements else []
        return tuple(line.partition(" : ")[2] for line in lines)

    @property
    def source(self) -> str:
        """Reference of the docstring, or else of the module that defines the function; empty without any."""
        for text in (inspect.getdoc(self.function), inspect.getdoc(inspect.getmodule(inspect.unwrap(self.function)))):
            _, found, after = (text or "").partition("References\n----------\n")
            if found:
                return " ".join(after.partition("\n\n")[0].split())
        return ""

    def under(self, model: str) -> Measure[..., T]:
        """The same measure with a fixed null model.

        All measures accept `redraw`, as in clustering-metrics; it matters only if a table is drawn.

        Examples
        --------
        >>> from streameval.arrays.contingency.table import ContingencyTable
        >>> table = ContingencyTable(rows=[[2, 1], [0, 3]])
        >>> table.vi_similarity_m1(True, True) == table.vi_similarity(model="m1")
        True
        """
        function: Callable[..., T] = self.function
        draws = self.takes("redraw")

        @wraps(function)
        def fixed(table: Any, normalize: bool = True, redraw: bool = False, **options: Any) -> T:
            return function(table, normalize, model, **(options | {"redraw": redraw} if draws else options))

        del fixed.__wrapped__  # its signature is its own
        see = f"The null model is ``{model}``; see `{function.__name__}`."
        fixed.__doc__ = f"{self.meaning}\n\n{see}\n\nReferences\n----------\n{self.source}"
        low = self.low if model == "m1" else float("-inf")
        return Measure(fixed, low, self.high, self.better, model=model, no_interval=NULL_MODEL)
