"""What the server refuses before anything is read: foreign hosts and pages, other types, too much, too often."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

HEADERS = {
    # The page's own files and nothing else: a script that came in by some mistake would not run and could not send.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
                               "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Refused(Exception):
    """A request that is not answered: the status, and one line."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def host_name(value: str) -> str:
    """The name in a Host header, without its port; empty where it is none."""
    try:
        parts = urlsplit(f"//{value}")
        return parts.hostname or "" if parts.port is not None or not value.endswith(":") else ""
    except ValueError:
        return ""


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether only this machine can reach a server there."""
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def check_host(values: list[str], allowed: Iterable[str]) -> None:
    """A name that somebody else's DNS points here is refused: his page would count as ours. An address cannot be one.

    Errors: Refused.
    """
    if len(values) != 1:
        raise Refused(400, "give one Host header")
    name = host_name(values[0])
    if not name:
        raise Refused(400, "the Host header is not a name with a port")
    if name != "localhost" and not is_address(name) and name not in allowed:
        raise Refused(403, "this server is not known by that name; start it with --host NAME")


def check_origin(headers: Mapping[str, str]) -> None:
    """Only our own page, or no page at all, may ask. Errors: Refused."""
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        raise Refused(403, "a page from elsewhere may not ask")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refused(403, "a page from elsewhere may not ask")


def check_type(headers: Mapping[str, str]) -> None:
    """JSON in UTF-8, as it is. Errors: Refused."""
    kind, *options = (part.strip().lower() for part in headers.get("content-type", "").split(";"))
    known = ("", "charset=utf-8", 'charset="utf-8"')
    if kind != "application/json" or any(option not in known for option in options):
        raise Refused(415, "send application/json in UTF-8", accept="application/json")
    if headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise Refused(415, "send the body as it is, not compressed", accept_encoding="identity")


def check_length(headers: Mapping[str, str], most: int, message: str) -> None:
    """What says that it is too long is not read. Errors: Refused."""
    given = headers.get("content-length")
    if given is not None and (len(given) > 15 or int(given) > most):
        raise Refused(413, message)


class Rate:
    """So many requests a second from one address, and some more at once; as many addresses are remembered as fit."""

    def __init__(self, a_second: float, at_once: int, addresses: int = 4096) -> None:
        self.a_second, self.at_once, self.addresses = a_second, at_once, addresses
        self.seen: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Errors: Refused."""
        if not self.a_second:
            return
        now = time.monotonic()
        left, last = self.seen.pop(address, (float(self.at_once), now))
        left = min(float(self.at_once), left + (now - last) * self.a_second)
        self.seen[address] = max(left - 1, 0), now
        if len(self.seen) > self.addresses:
            self.seen.popitem(last=False)
        if left < 1:
            raise Refused(429, f"more than {self.a_second:g} requests a second", retry_after="1")
