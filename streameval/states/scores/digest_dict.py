"""Exchange with the tdigest package: `tdigest.TDigest` objects, and the dictionaries of `TDigest.to_dict`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streameval.errors import FormatError

if TYPE_CHECKING:
    from tdigest import TDigest

    from streameval.typing import Array

_K = 25  # capacity factor of the tdigest package, which compresses a digest at K/delta centroids


def parsed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the sketch of a dictionary; centroids with infinite or NaN means are only counted.

    Raises
    ------
    FormatError
        If `values` is not the dictionary of a t-digest, or has counts that are not positive and finite.
    """
    try:
        if not isinstance(values, Mapping):
            raise TypeError(type(values))
        rows = [(c["m"], c["c"], bool(c.get("single", c["c"] == 1))) for c in values["centroids"]]
        table = np.array(rows, np.float64).reshape(-1, 3)
        counts = {name: int(values.get(name, 0)) for name in ("below", "above", "nan")}
        ends = float(values.get("min", math.inf)), float(values.get("max", -math.inf))
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        msg = (
            f"this is not the dictionary of a t-digest, with 'centroids' of 'm' and 'c' "
            f"({type(error).__name__}: {error}); make it with to_dict()"
        )
        raise FormatError(msg) from error
    mean, weight, single = table[np.argsort(table[:, 0], kind="stable")].T
    if not (np.isfinite(weight).all() and (weight > 0).all() and min(counts.values()) >= 0):
        msg = "a t-digest's counts are positive and finite; these are not: make the dictionary again with to_dict()"
        raise FormatError(msg)
    for name, here in (("below", mean == -np.inf), ("above", mean == np.inf), ("nan", np.isnan(mean))):
        counts[name] += round(float(weight[here].sum()))
    finite = np.isfinite(mean)
    mean, weight, single = mean[finite], weight[finite], single[finite] > 0
    low, high = min([*mean[:1].tolist(), ends[0]]), max([*mean[-1:].tolist(), ends[1]])
    return {"mean": mean, "weight": weight, "single": single, "low": low, "high": high, **counts}


class TDigestExchange:
    """Conversion of a sketch to and from the digests of the tdigest package."""

    spec: Any
    mean: Array
    weight: Array
    single: Array
    low: float
    high: float
    below: int
    above: int
    nan: int

    def to_dict(self) -> dict[str, Any]:
        """The digest in the format of `tdigest.TDigest.to_dict`, which `TDigest.update_from_dict` reads.

        ``delta`` is 1/compression, so that the package does not merge the centroids. The keys ``min``, ``max``,
        ``below``, ``above`` and ``nan``, and ``single`` for centroids of several equal numbers, are additions that the
        package ignores.

        Examples
        --------
        >>> from streameval.states.scores.quantile_sketch import QuantileSketch
        >>> QuantileSketch.from_values([1.0, 2.0, 2.0]).to_dict()["centroids"]
        [{'m': 1.0, 'c': 1.0}, {'m': 2.0, 'c': 2.0, 'single': True}]
        """
        columns = (column.tolist() for column in (self.mean, self.weight, self.single))
        centroids = [
            {"m": m, "c": c} | ({"single": True} if single and c != 1 else {})
            for m, c, single in zip(*columns, strict=True)
        ]
        extra: dict[str, float] = {"below": self.below, "above": self.above, "nan": self.nan}
        if self.mean.size:
            extra |= {"min": self.low, "max": self.high}
        plain = {"n": float(self.weight.sum()), "delta": 1 / self.spec.compression, "K": _K}
        return plain | {"centroids": centroids} | extra

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], spec: Any = None) -> Self:
        """The sketch of a dictionary that `to_dict` or `tdigest.TDigest.to_dict` made.

        Centroids with infinite or NaN means, which corrupt the quantiles of a `TDigest`, are only counted.

        Parameters
        ----------
        values : mapping
            ``centroids`` is required; the additional keys of `to_dict` are optional.
        spec : QuantileSpec, optional
            The spec of the sketches with which this one will be merged; its compression applies from the next merge.

        Raises
        ------
        FormatError
            If `values` is not the dictionary of a t-digest.
        """
        made: Any = cls
        found: Self = made(**parsed(values), **({} if spec is None else {"spec": spec}))
        return found

    def to_tdigest(self) -> TDigest:
        """The digest of the finite numbers as a `tdigest.TDigest`, which can be updated and added to others.

        A `TDigest` stores neither counts of infinities and NaN, nor the smallest and largest number.

        Examples
        --------
        >>> from streameval.states.scores.quantile_sketch import QuantileSketch
        >>> QuantileSketch.from_values(np.arange(1000.0)).to_tdigest().percentile(50)
        499.5
        """
        from tdigest import TDigest

        return TDigest().update_from_dict(self.to_dict())

    @classmethod
    def from_tdigest(cls, digest: TDigest, spec: Any = None) -> Self:
        """The sketch of a `tdigest.TDigest`; see `from_dict`.

        Raises
        ------
        FormatError
            If `digest` is not a `tdigest.TDigest`.

        Examples
        --------
        >>> from tdigest import TDigest
        >>> from streameval.states.scores.quantile_sketch import QuantileSketch
        >>> theirs = TDigest()
        >>> theirs.batch_update([1.0, 2.0, 4.0])
        >>> QuantileSketch.from_tdigest(theirs).cdf(2.0)
        0.5
        """
        if not hasattr(digest, "centroids_to_list"):
            msg = f"this is {type(digest).__name__}, not a tdigest.TDigest; dictionaries are read by from_dict()"
            raise FormatError(msg)
        return cls.from_dict(digest.to_dict(), spec)
