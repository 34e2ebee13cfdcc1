"""Which names this service answers to, and which pages may send it requests.

A page that somebody visits can send requests to services in his network: from an address of its own (refused by its
Origin), or to a name of its own that suddenly leads here (DNS rebinding; refused by its Host). Where no hosts are
named, names that such a page cannot have are let in: addresses, names without a dot, and the host that the service is
bound to. Where there are keys any name is: no page has the key.
"""

from __future__ import annotations

import ipaddress
import re

from app.api.middleware.asgi import Message, header, headers_named
from app.errors import HostRefused, OriginRefused
from app.settings import Settings

ANY = "*"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")
_OWN_SITE = ("", "same-origin", "none")


class Origins:
    """Checks the Host and the Origin of requests."""

    def __init__(self, settings: Settings) -> None:
        self._hosts = tuple(name.lower() for name in settings.allowed_hosts)
        self._bound = settings.host.lower()
        self._pages = tuple(page.lower() for page in settings.allowed_origins)
        self._any = ANY in self._hosts or bool(settings.keys_file and not self._hosts)

    def require(self, scope: Message) -> None:
        """Raises HostRefused and OriginRefused."""
        host = self._host(scope)
        origin = header(scope, b"origin").lower()
        if origin:
            if origin not in (f"http://{host}", f"https://{host}", *self._pages) or not host:
                raise OriginRefused(
                    "requests from pages of other origins are refused; ABS_ALLOWED_ORIGINS lists those let in"
                )
        elif header(scope, b"sec-fetch-site") not in _OWN_SITE and header(scope, b"sec-fetch-mode") != "navigate":
            raise OriginRefused("requests from pages of other origins are refused")

    def _host(self, scope: Message) -> str:
        """The host that the request names, in lower case; nothing where it names none, as HTTP/1.0 may."""
        given = headers_named(scope, b"host")
        if not given:
            return ""
        match = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if match is None:
            raise HostRefused("the Host header is not a host")
        if not self._known(match[1].strip("[]").lower()):
            raise HostRefused("the Host header names another host than this one ; ABS_ALLOWED_HOSTS lists those let in")
        return given[0].lower()

    def _known(self, name: str) -> bool:
        if self._any:
            return True
        if self._hosts:
            return any(name == host or (host.startswith(".") and name.endswith(host)) for host in self._hosts)
        return "." not in name or name.endswith(".localhost") or name == self._bound or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to `host`."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
