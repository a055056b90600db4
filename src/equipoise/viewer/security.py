"""Who may look, and what a page may do.

The server shows whatever models and data files wrote. A page therefore runs only the viewer's
own scripts, asks only this server, and cannot be framed; a request needs the token that the
command printed, and must name this very server, so that no other web page can read the store.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"x-frame-options": b"DENY",
}

Refusal = Callable[[Request, int, str], Response]

_YEAR = 365 * 24 * 3600


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Guard:
    """Lets requests through that come from this machine's own pages and carry the token.

    Parameters
    ----------
    app
        What is guarded.
    token
        Asked for in the address once, then kept in a cookie.
    hosts
        Names that a request may call this server by, with the port; None for any, where the
        server was bound to an address that others reach.
    refuse
        Makes the page of a refusal from its status and sentence.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        hosts: frozenset[str] | None,
        refuse: Refusal,
    ) -> None:
        self.app, self.token, self.hosts, self.refuse = app, token, hosts, refuse
        self.cookie = "equipoise"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer, with the headers that bind the page."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(k, v) for k, v in HEADERS.items() if k not in given]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        request = Request(scope)
        answer = self._answer(request)
        await (answer or self.app)(scope, receive, bound)

    def _answer(self, request: Request) -> Response | None:
        """Return a refusal or a redirection, None for a request that may pass."""
        if self.hosts is not None and request.headers.get("host") not in self.hosts:
            return self.refuse(request, 400, "This server does not answer to that name.")
        if request.method not in ("GET", "HEAD"):
            return self.refuse(request, 405, "This server only shows; it takes no orders.")
        # Browsers keep cookies by name alone; another viewer has another port.
        name = f"{self.cookie}-{(request.scope.get('server') or ('', 80))[1]}"
        given = request.query_params.get("token")
        if given is not None and self._right(given):
            return self._welcome(request, name)
        cookie: SimpleCookie = SimpleCookie(request.headers.get("cookie", ""))
        if name in cookie and self._right(cookie[name].value):
            return None
        return self.refuse(
            request,
            403,
            "The address lacks the right token: open the one that `equipoise view` printed.",
        )

    def _right(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())

    def _welcome(self, request: Request, name: str) -> Response:
        """Keep the token in a cookie and take it out of the address, which people share."""
        rest = [(k, v) for k, v in parse_qsl(request.url.query) if k != "token"]
        path = request.url.path
        # Two slashes would begin another server's address.
        target = "/" + path.lstrip("/") + (f"?{urlencode(rest)}" if rest else "")
        answer = RedirectResponse(target, 303)
        answer.set_cookie(name, self.token, max_age=_YEAR, httponly=True, samesite="strict")
        return answer
