"""Tiny worlds with known truth: models and data small enough to make in minutes."""
