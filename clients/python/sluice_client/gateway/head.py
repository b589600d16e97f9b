"""Checks the head of a request, and makes the options of calls to the daemon from its headers."""

from __future__ import annotations

import ipaddress
import re
import uuid
from functools import lru_cache
from typing import Any, Iterable, Mapping, Optional

from .hostile import Limits, Refused, start_with

# Most bytes of `authorization` that are passed on. gRPC ends the connection, with the calls of all
# callers, if the headers of a call exceed the daemon's limit of 8 KiB.
_MAX_AUTHORIZATION_BYTES = 4096
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_MAX_TRACESTATE_BYTES = 512
_MAX_REQUEST_ID_BYTES = 256

_PRIVATE_NAMES = (".localhost", ".local", ".internal", ".svc")
_ADDRESS_LENGTH = 45  # of the text of an address

# The first value of each header, by its name in lower case.
Head = Mapping[str, str]


def head_of(headers: Iterable[tuple[bytes, bytes]]) -> Head:
    """Returns the headers of an ASGI scope."""
    made: dict[str, str] = {}
    for name, value in headers:
        made.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return made


def check_head(headers: Head, hosts: frozenset[str], origins: frozenset[str]) -> None:
    """Refuses a call from a page of a foreign origin, to a foreign name of this host, or with
    a compressed body."""
    host = headers.get("host")
    if host is not None and not is_own_host(host, hosts):
        raise Refused(421, f"{host[:100]!r} is not a name of this gateway;"
                      f" {start_with('--host NAME')} if it is yours", reason="host")
    origin = headers.get("origin")
    if origin is not None and not {"*", origin} & origins:
        raise Refused(403, f"pages of the origin {origin[:100]!r} are not allowed;"
                      f" {start_with('--allow-origin ORIGIN')} to allow them", reason="origin")
    coding = headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise Refused(415, f"the body has the coding {coding[:100]!r}; send it without"
                      " content-encoding")


def is_own_host(host: str, own: frozenset[str]) -> bool:
    """Returns whether a Host header is an address, a private name, or one of `own`.

    A page of another site whose name resolves to this gateway is refused by this, although its
    requests have no Origin (DNS rebinding).
    """
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    name = name.lower()
    if "*" in own or name in own or "." not in name and ":" not in name:
        return True
    return name.endswith(_PRIVATE_NAMES) or len(name) <= _ADDRESS_LENGTH and _is_address(name)


@lru_cache(maxsize=256)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return False


def request_id_of(headers: Head) -> str:
    """Returns the valid id in `x-request-id`, or else a new id."""
    given = headers.get("x-request-id", "")
    valid = 0 < len(given) <= _MAX_REQUEST_ID_BYTES and is_printable(given)
    return given if valid else uuid.uuid4().hex


def call_options(
    headers: Head, limits: Limits, request_id: str, address: str = "",
    traceparent: Optional[str] = None,
) -> dict[str, Any]:
    """Returns the options of calls to the daemon that the headers of a request set.

    `x-request-timeout-ms` is the deadline of the whole call. `request_id` is the request's id, as
    `request_id_of` returns it.
    `authorization` and a well-formed trace context are passed on. `traceparent` replaces the
    caller's. Callers without `authorization` take turns at the daemon by their `address`.
    """
    options: dict[str, Any] = {}
    if (asked := headers.get("x-request-timeout-ms")) is not None:
        if not asked.isdecimal() or not asked.isascii() or not 0 < len(asked) <= 12:
            raise Refused(400, "the header x-request-timeout-ms must be a number of milliseconds"
                          " of at most 12 digits")
        options["timeout_s"] = min(int(asked) / 1000, limits.max_timeout_s)
    if headers.get("x-request-id", "") not in ("", request_id):
        raise Refused(400, f"x-request-id must be at most {_MAX_REQUEST_ID_BYTES} printable ASCII"
                      " characters")
    passed = []
    if (authorization := headers.get("authorization")) is not None:
        if len(authorization) > _MAX_AUTHORIZATION_BYTES:
            raise Refused(431, f"the header authorization has {len(authorization)} bytes; the limit"
                          f" is {_MAX_AUTHORIZATION_BYTES}", reason="head")
        if not is_printable(authorization):
            raise Refused(400, "the header authorization has characters that are not printable"
                          " ASCII")
        passed.append(("authorization", authorization))
    elif address:
        passed.append(("sluice-client", address))
    traceparent = traceparent or headers.get("traceparent", "")
    if _TRACEPARENT.fullmatch(traceparent):
        passed.append(("traceparent", traceparent))
        state = headers.get("tracestate", "")
        if state and len(state) <= _MAX_TRACESTATE_BYTES and is_printable(state):
            passed.append(("tracestate", state))
    return {**options, "request_id": request_id, "metadata": passed}


def is_printable(value: str) -> bool:
    """Returns whether a text has only printable ASCII characters."""
    return all(" " <= each <= "~" for each in value)
