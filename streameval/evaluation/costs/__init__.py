"""Costs: what each cluster and class costs the score, found in one sweep over folded states.

Whether data, a store or an evaluation gave the states makes no difference.
"""
