"""Rules: conditions on results, for gates and schedulers.

`grammar` parses rules; `judging` judges values by them.
"""

from streameval.rules.grammar import FACTS, LIVE, Rule, named_rules
from streameval.rules.judging import (
    BASELINE,
    ENOUGH,
    ESTIMATED,
    Verdict,
    difference,
    judge,
    judge_slices,
    outcome_word,
)

__all__ = [
    "BASELINE",
    "ENOUGH",
    "ESTIMATED",
    "FACTS",
    "LIVE",
    "Rule",
    "Verdict",
    "difference",
    "judge",
    "judge_slices",
    "named_rules",
    "outcome_word",
]
