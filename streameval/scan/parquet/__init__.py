"""Parquet: row groups of a file, the pages in them, and the ranges of an object that hold them."""

from streameval._submodules import import_when_named

import_when_named(__name__)
