"""Sampling: the rows that a run draws for the approximate gain area, and the number of passes.

Single rows are sampled while they are folded, in the same pass as everything else. Row groups are sampled here, before
anything is read: the requested share, rounded up, with the smallest hashes of (sequence, number).

One pass folds digests, from which counts between any edges are interpolated. It works for readers, which can be read
only once. A second pass counts exactly between edges that the first one chose, so that the error bound holds for the
sample with certainty. With few distinct scores (atoms) the bound is also much smaller, because a bin with one distinct
score loses nothing.

By default a second pass is made, if the data can be read again, when at least 1 % of the sample belongs to atoms in the
digests, or when all rows are drawn and some centroid has several scores; the interval then contains the exact value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from streameval.engine.fold import Folded, Plan
from streameval.errors import OptionError
from streameval.metrics.scores.gain import AgcApprox
from streameval.scan import Piece, Scan, row_groups
from streameval.states.scores.digests import DigestsSpec, SampledDigests
from streameval.states.scores.draws import BinsSpec, check_sample, origin_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.metrics.protocol import Metric

    Reader = Callable[[Sequence[Piece], int, Plan], Folded]

ATOMS = 0.01  # share of the sample in atoms that triggers a second pass


@dataclass(frozen=True)
class Sampling:
    """The options of the approximate gain area; raises `OptionError` for invalid values.

    Attributes
    ----------
    sample : share of the rows, or of the row groups, in (0, 1]
    quantiles : bins of the truncated part
    sample_by : ``rows`` or ``row_groups``
    sample_seed : seed of the sample
    passes : 1, 2, or None to decide after the first

    Examples
    --------
    >>> Sampling(sample=2)
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: sample=2 is not a share in (0, 1] (--sample)
    """

    sample: float = 1.0
    quantiles: int = 100
    sample_by: str = "rows"
    sample_seed: int = 0
    passes: int | None = None

    def __post_init__(self) -> None:
        check_sample(self.sample)
        AgcApprox(1, self.quantiles)
        if self.sample_by not in ("rows", "row_groups"):
            raise OptionError(f"sample_by={self.sample_by!r} must be one of rows, row_groups")
        if self.passes not in (None, 1, 2):
            raise OptionError(f"passes={self.passes!r} must be 1 or 2")

    @property
    def by_row_group(self) -> bool:
        """Whether whole row groups are drawn."""
        return self.sample_by == "row_groups"

    def spec(self, column: str, kind: str, nan: str, *, weighted: bool) -> DigestsSpec:
        """The state of the first pass."""
        sample = 1.0 if self.by_row_group else self.sample
        return DigestsSpec(column, kind, nan, sample, self.sample_seed, self.by_row_group, weighted)

    def check(self, found: Scan) -> None:
        """Raise `OptionError` if the data do not allow these options."""
        if self.passes == 2 and not found.splittable:
            raise OptionError(
                "passes=2 reads the data twice, and a reader can be read only once: choose passes=1 (--passes)"
            )
        if self.by_row_group and found.rows < 0:
            raise OptionError(
                "data whose rows are not known before reading have no row groups: choose sample_by='rows'"
            )

    def pieces(self, found: Scan) -> tuple[Piece, ...]:
        """The row groups drawn, one per piece, in the order of the scan."""
        pieces = [single for piece in found.pieces for single in row_groups(piece)]
        rank = [(origin_hash(self.sample_seed, f"{piece.origin}\0{piece.row}"), i) for i, piece in enumerate(pieces)]
        chosen = sorted(i for _, i in sorted(rank)[: math.ceil(self.sample * len(pieces))])
        return tuple(pieces[i] for i in chosen)

    def fold(
        self, found: Scan, plan: Plan, wanted: Mapping[DigestsSpec, Sequence[Metric]], read: Reader
    ) -> tuple[Folded, dict[DigestsSpec, tuple[DigestsSpec | BinsSpec, tuple[AgcApprox, ...]]]]:
        """Make all passes over the data.

        Parameters
        ----------
        found, plan : the scan, and everything to fold in the first pass
        wanted : the metrics of each sampled state, by its spec
        read : folds pieces according to a plan, given their number of rows

        Returns
        -------
        Folded
            All states.
        dict
            For each sampled spec, the spec of its final state and the metrics.
        """
        pieces, rows, share = found.pieces, found.rows, 1.0
        if self.by_row_group:
            pieces = self.pieces(found)
            rows = sum(piece.rows for piece in pieces)
            share = rows / found.rows
            others = tuple(spec for spec in plan.specs if spec not in wanted)
            first = [read(found.pieces, found.rows, replace(plan, specs=others))] if others else []
            plan = replace(plan, by_row_group=True)
            first.append(read(pieces, rows, replace(plan, specs=tuple(wanted))))
        else:
            first = [read(pieces, rows, plan)]
        states = _joined(first).states
        metrics = {
            spec: tuple(replace(m, read=share) for m in asked if isinstance(m, AgcApprox))
            for spec, asked in wanted.items()
        }
        finer: dict[DigestsSpec, BinsSpec] = {}
        for spec, asked in metrics.items():
            again = self.second(cast("SampledDigests", states[spec]), asked) if found.splittable else None
            if again is not None:
                finer[spec] = again
        if finer:
            first.append(read(pieces, rows, replace(plan, specs=tuple(finer.values()))))
        return _joined(first), {spec: (finer.get(spec, spec), asked) for spec, asked in metrics.items()}

    def second(self, state: SampledDigests, metrics: Sequence[AgcApprox]) -> BinsSpec | None:
        """The spec of the second pass; None if one pass is enough."""
        if self.passes == 1 or (self.passes is None and state.tied < ATOMS and (self.sample < 1 or state.exact)):
            return None
        return state.refine([metric.share(state) for metric in metrics], self.quantiles)


def _joined(passes: Sequence[Folded]) -> Folded:
    """The states of all passes; for a state that several passes have, such as the labels, that of the earliest."""
    states = {spec: state for folded in reversed(passes) for spec, state in folded.states.items()}
    return Folded(states, tuple(dict.fromkeys(skipped for folded in passes for skipped in folded.skipped)))
