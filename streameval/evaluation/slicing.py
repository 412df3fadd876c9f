"""Slicing: the columns by which rows are sliced, and the states to fold for them.

All slicings share one pass over the data. The state of all rows is the merge of the slices of the first slicing, so it
needs no counting of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.results import Scalar
from streameval.scan.derived import Derived, slicing
from streameval.states.grouped import By, Grouped, GroupedSpec, Joint, JointSpec
from streameval.states.grouped.cluster_sheaf import ClusterSheaf
from streameval.states.grouped.sheaf import Sheaf
from streameval.states.scores.block_slices import BlockSlicesSpec
from streameval.states.scores.blocks import BlockSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from streameval.budget import Budget
    from streameval.engine import Engine

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
        """Parse slicings; each may have at most `most` slices.

        Raises
        ------
        OptionError
            If a text is not a valid slicing.
        """
        made = cls(tuple(By(tuple(slicing(text)), most) for text in texts))
        for name in made._names:
            if not name:
                msg = (
                    f"by={','.join(made._names)!r}: a column is missing before or after a comma; write country,channel"
                )
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
        """Slicing columns that are computed from other columns."""
        return tuple(made for name in self._names if (made := Derived.of_text(name)) is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        made = {each.name: each.column for each in self.derived}
        return tuple(dict.fromkeys(made.get(name, name) for name in self._names))

    @property
    def plain(self) -> tuple[str, ...]:
        """Slicing columns whose own values are the slices."""
        made = {each.name for each in self.derived}
        return tuple(name for name in self._names if name not in made)

    def check_apart(self, scores: Sequence[str]) -> None:
        """Raise `OptionError` if the values of a score are slices: each would hold equal scores."""
        for name in self._names:
            if name in scores:
                msg = f"by={name!r}: a slice would hold rows of one score; give edges, such as by='{name}=0.2,0.5'"
                raise OptionError(msg)

    def check(self, schema: pa.Schema, name: str) -> None:
        """Raise `SchemaError` if a column cannot be computed from this schema; `name` is the file that errors name."""
        for each in self.derived:
            each.check(schema.field(each.column).type, name)

    def specs(self, specs: Sequence[Any]) -> tuple[Any, ...]:
        """The specs to fold instead of these."""
        if not self.keys:
            return tuple(specs)
        joint = tuple(JointSpec(spec, self.keys) for spec in specs if JointSpec.fits(spec, self.keys))
        others = [spec for spec in specs if not JointSpec.fits(spec, self.keys)]
        return joint + tuple(GroupedSpec(spec, key) for key in self.keys for spec in others)

    def _first(self, states: Mapping[Any, Any], spec: Any) -> Any:
        """The sliced state that holds all rows, split at least by the first slicing."""
        joint = JointSpec.fits(spec, self.keys)
        return states[JointSpec(spec, self.keys) if joint else GroupedSpec(spec, self.keys[0])]

    def grouped(self, states: Mapping[Any, Any], spec: Any, key: By) -> Any:
        """The state of a slicing."""
        if JointSpec.fits(spec, self.keys):
            return states[JointSpec(spec, self.keys)].slicing(key)
        return states[GroupedSpec(spec, key)]

    def sheaves(self, states: Mapping[Any, Any], spec: Any, engine: Engine) -> Sequence[Sheaf | ClusterSheaf]:
        """All rows and all slices of a state side by side; none if the state is not stored that way."""
        state = self._first(states, spec) if self.keys else None
        if isinstance(state, Joint) and not state.further:
            return [Sheaf.tallied(state.woven, engine.each, [state.spec.part(key) for key in self.keys])]
        if not isinstance(state, Grouped):
            return []
        if state.woven is None:
            found = (self.grouped(states, spec, key) for key in self.keys)
            made = [ClusterSheaf.of(each, k, engine.budget) for k, each in enumerate(found)]
            return [] if None in made else [each for each in made if each is not None]
        if len(self.keys) > 1 or state.apart or len(state.joined.table):
            return []
        return [Sheaf.tallied(state.woven, engine.each)]

    def blocks(self, specs: Sequence[Any]) -> tuple[Any, ...]:
        """The block specs to fold instead of these; those that only differences over all rows need are unchanged."""
        split = [spec for spec in specs if isinstance(spec, BlockSpec)] if self.keys else []
        return (
            *(BlockSlicesSpec(spec, key) for key in self.keys for spec in split),
            *(spec for spec in specs if spec not in split),
        )

    def whole_blocks(self, states: Mapping[Any, Any]) -> dict[Any, Any]:
        """The block counts of all rows, by their specs."""
        found = [(spec, state) for spec, state in states.items() if isinstance(spec, BlockSlicesSpec)]
        return {spec.inner: state.total() for spec, state in found if spec.key == self.keys[0]}

    def wholes(self, states: Mapping[Any, Any], specs: Sequence[Any], budget: Budget) -> dict[Any, Any]:
        """The states of all rows, by their inner specs."""
        if not self.keys:
            return {spec: states[spec] for spec in specs}
        for key in self.keys:
            state = self._first(states, specs[0])
            key.check(
                state.count(key) if isinstance(state, Joint) else len(states[GroupedSpec(specs[0], key)].groups())
            )
        return {spec: self._first(states, spec).total(budget) for spec in dict.fromkeys(specs)}


WHOLE = Slicing()  # no slices
