"""What `docs/generate.py` is made of: one module a kind of page."""
