"""States of scores."""

from __future__ import annotations

from streameval._submodules import import_when_named

import_when_named(__name__)
