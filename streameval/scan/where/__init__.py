"""Where: filters of rows.

- ``sql`` parses and checks a condition in SQL; nothing is ever evaluated as code;
- ``literals`` converts values of a condition to the type of the column that they are compared with;
- ``translation`` translates the condition to an Arrow expression;
- ``expressions`` finds the columns of an Arrow expression that a user passes;
- ``condition`` is the common interface of both kinds, and tests the rows of a batch;
- ``pruning`` skips pieces that cannot contain such a row, by their path and the statistics of their row groups.

Nulls are treated as in SQL: a comparison with a null is neither true nor false, and only rows for which the condition
is true are kept. A NaN is neither less than, greater than nor equal to any number, as in IEEE 754 and in Arrow.
"""

from streameval.scan.where.condition import Test, Where
from streameval.scan.where.pruning import Pruned, prune

__all__ = ["Pruned", "Test", "Where", "prune"]
