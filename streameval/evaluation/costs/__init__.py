"""Costs: how much each cluster and class lowers the score, from one sweep over folded states.

The states come from data, a store or an evaluation.
"""
