"""The catalogue: every metric, by the kind of state it reads.

A new metric is one class in one file of this package and its entry in that file's tuple; the command line, the report
and the tests of the whole catalogue find it here.
"""

from streameval.metrics.clusters.lift import LIFT
from streameval.metrics.scores.gain import GAIN
from streameval.metrics.scores.ranking import RANKING

__all__ = ["GAIN", "LIFT", "RANKING"]
