"""Costs: how much each cluster and class lowers the score, computed in one sweep over folded states.

The states may come from data, a store or an evaluation.
"""
