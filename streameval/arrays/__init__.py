"""The same metrics for arrays in memory: drop-in replacements for functions that people use today.

No metric is implemented a second time. Every function validates its arrays, folds them into the same state as
partitioned data, and calls the same metric. A value from a notebook and that of a run over a thousand files are
therefore equal, to the last bit if there are no weights.
"""

from streameval._submodules import import_when_named

import_when_named(__name__)
