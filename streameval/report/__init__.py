"""Results → something to read: tables for the terminal, and one HTML page for everyone else.

Knows result types, never metrics or states: what it says of a metric, such as which end is better, is handed to it.
"""

from __future__ import annotations

from streameval.report.terminal import Found, cell, render, series, text

__all__ = ["Found", "cell", "render", "series", "text"]
