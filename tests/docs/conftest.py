"""Makes `docs/` importable, as it is for `python docs/generate.py`."""

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
