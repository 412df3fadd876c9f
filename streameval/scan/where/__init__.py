"""Where: filters of rows.

- ``sql``: a condition in SQL, parsed and checked; nothing is ever evaluated as code;
- ``literals``: values of a condition in the type of the column that they are compared with;
- ``translation``: the condition as an Arrow expression;
- ``expressions``: the columns of an Arrow expression that a user passes;
- ``condition``: both kinds behind one face, and the rows of a batch that meet it;
- ``pruning``: pieces that cannot hold such a row, by their path and their row groups' statistics.

Nulls are as SQL has them: a comparison with a null is neither true nor false, and only rows for which the condition is
true are kept. A NaN is neither below, above nor equal to any number, as in IEEE 754 and in Arrow.
"""

from streameval.scan.where.condition import Test, Where
from streameval.scan.where.pruning import Pruned, prune

__all__ = ["Pruned", "Test", "Where", "prune"]
