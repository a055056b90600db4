"""Conformance: what every part must pass, equipoise's own and those of other packages.

>>> from equipoise.catalog import catalog
>>> from equipoise.checks import checks_for
>>> [check.name for check in checks_for("measure")][:2]
['card_and_module_agree', 'import_is_silent']

A part that cannot pass a check says why: ``exempt = {"check": "reason"}`` on its
class. The reason stands on its page, and the exemption fails once the check passes.
"""

from equipoise.checks._run import Check, CheckFailure, checks_for, verify

__all__ = ["Check", "CheckFailure", "checks_for", "verify"]
