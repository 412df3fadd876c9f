"""Slicing: by which columns rows are sliced, and the states to fold for it.

All slicings share the one pass. The states of all rows are the merge of the slices of the first slicing, so nothing is
counted twice for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.results import Scalar
from streameval.scan.derived import Derived, slicing
from streameval.states.grouped import By, GroupedSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from streameval.budget import Budget

__all__ = ["WHOLE", "Slicing"]


@dataclass(frozen=True)
class Slicing:
    """How the rows are sliced.

    Attributes
    ----------
    keys : the slicings, each by one or several columns

    Examples
    --------
    >>> Slicing.of(("country", "country,hour(sent_at)"), 10_000).columns
    ('country', 'sent_at')
    """

    keys: tuple[By, ...] = ()

    @classmethod
    def of(cls, texts: Sequence[str], most: int) -> Slicing:
        """The slicings that texts describe, each of `most` slices at most.

        Raises
        ------
        OptionError
            If a text is not understood.
        """
        made = cls(tuple(By(tuple(slicing(text)), most) for text in texts))
        for name in made._names:
            if not name:
                msg = f"by={','.join(made._names)!r}: a column is missing beside a comma; write country,channel"
                raise OptionError(msg)
            if name in ("by", *Scalar.__dataclass_fields__):
                msg = f"by={name!r}: results have a column of this name; rename the slicing column"
                raise OptionError(msg)
        return made

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for key in self.keys for name in key.columns))

    @property
    def derived(self) -> tuple[Derived, ...]:
        """Slicing columns that are computed."""
        return tuple(made for name in self._names if (made := Derived.of_text(name)) is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        made = {each.name: each.column for each in self.derived}
        return tuple(dict.fromkeys(made.get(name, name) for name in self._names))

    def check(self, schema: pa.Schema, name: str) -> None:
        """Raise `SchemaError` if a computed column cannot be; `name` is a file."""
        for each in self.derived:
            each.check(schema.field(each.column).type, name)

    def specs(self, specs: Sequence[Any]) -> tuple[Any, ...]:
        """What to fold in place of these specs."""
        return tuple(GroupedSpec(spec, key) for key in self.keys for spec in specs) if self.keys else tuple(specs)

    def wholes(self, states: Mapping[Any, Any], specs: Sequence[Any], budget: Budget) -> dict[Any, Any]:
        """The states of all rows, by their inner specs."""
        if not self.keys:
            return {spec: states[spec] for spec in specs}
        for key in self.keys:
            key.check(len(states[GroupedSpec(specs[0], key)].groups()))
        return {spec: states[GroupedSpec(spec, self.keys[0])].total(budget) for spec in dict.fromkeys(specs)}


WHOLE = Slicing()  # no slices
