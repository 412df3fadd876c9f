"""Compiled loops over plain arrays.

Nothing here knows Arrow, files or classes: arguments and results are numpy arrays and numbers. Every loop releases the
GIL, so threads run them side by side.
"""

from streameval._submodules import import_when_named

import_when_named(__name__)
