"""Reasons why the value of a score metric is undefined."""

from __future__ import annotations

ONE_CLASS = "one class only"
NO_POSITIVES = "no positives"
NO_NEGATIVES = "no negatives"
NO_ROWS = "no rows"
LACKS_ROWS = (ONE_CLASS, NO_POSITIVES, NO_NEGATIVES)  # true of no rows as well
NO_WEIGHT = "no weight in the part kept, or too little for float64"
WEIGHTED = "a histogram cannot bound a weighted metric cut at a number of points; leave out approx (--approx)"
HALF = "NaN scores count as halves in roc_auc, agc and gini only; choose nan='drop' (--nan drop)"
OUTSIDE = "a score is outside [0, 1], so the scores are not probabilities; transform them, or leave this metric out"
NO_LOGIT = "a score of 0 or 1 has no logit"
UNBOUNDED = "a histogram cannot bound a fit; leave out approx (--approx)"
NOTHING_FLAGGED = "no score reaches the threshold"
