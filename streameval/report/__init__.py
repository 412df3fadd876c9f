"""Render results: tables for the terminal, and one HTML page for everyone else.

This package knows result types, but no metrics or states: callers pass what it needs to know about a metric, such as
whether higher is better.
"""

from streameval._submodules import import_when_named

import_when_named(__name__)
