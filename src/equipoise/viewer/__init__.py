"""The web page: look at a store's trials, their units and their verdicts.

`serve` starts it; `create_app` gives the ASGI application alone. Both read and never write.
"""

from equipoise.core.lazy import lazily

_WHERE = {"create_app": "app", "serve": "server"}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)
