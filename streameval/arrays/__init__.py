"""The same metrics for arrays in memory: drop-ins for the functions people use today.

Nothing is computed here a second time. Every function checks its arrays, folds them into the state that partitioned
data would be folded into, and calls the metric that evaluates partitioned data; so a number from a notebook and the
number from a run over a thousand files are the same number, to the last bit where no weights are given.
"""
