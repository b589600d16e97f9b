"""Checks every request; no input of a caller is trusted before these checks.

A body is limited in bytes and time while it is read, and in depth and number of values before it is
parsed. Every field is checked for name, type and range. Unknown fields are refused, so that no
caller relies on a field without effect.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import (
    Any,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Optional,
    Sequence,
)

from ..aio import within

Receive = Callable[[], Awaitable[Any]]


def start_with(option: str) -> str:
    """Returns the remedy that sets an option, for the gateway and for `sluice serve`."""
    return f"start the gateway with {option} (sluice serve DIR --gateway {option})"


class Refused(Exception):
    """A request that the gateway refuses: the HTTP status, and the reason."""

    def __init__(
        self, status: int, message: str, field: Optional[str] = None, reason: str = ""
    ) -> None:
        """`reason` names the limit of the gateway that refuses the request, if one does."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.reason = reason


class Disconnected(Exception):
    """The caller disconnected before its request was complete."""


@dataclass(frozen=True)
class Limits:
    """The limits of requests. The daemon limits texts, rows and tokens."""

    max_body_bytes: int = 4 << 20
    max_pending_bytes: int = 256 << 20  # memory of all calls in progress, as Structure.cost counts
    max_depth: int = 32
    max_values: int = 65_536  # objects, arrays and texts in a body
    max_messages: int = 1000  # of a chat
    max_choices: int = 16  # answers to a prompt: n
    # Calls in progress. One caller may have 1560 of them; clients of OpenAI open 1000 connections.
    max_in_flight: int = 2048
    max_daemon_calls: int = 128  # calls in progress at the daemon
    body_timeout_s: float = 30.0  # for the whole body to arrive
    timeout_s: float = 60.0  # deadline of a call that sets none
    max_timeout_s: float = 600.0
    template_timeout_s: float = 1.0  # for a chat template to render
    stall_timeout_s: float = 30.0  # for the caller to receive a piece of an answer


async def read_body(
    receive: Receive, length: Optional[str], limits: Limits, hold: Callable[[int], None]
) -> bytes:
    """Reads a body. `length` is the content-length header, or None.

    `hold` is called with the size of each piece that arrives, and may refuse it.
    """
    too_long = Refused(
        413, f"the body has more than {limits.max_body_bytes} bytes (--max-body-bytes)",
        reason="size"
    )
    if length is not None and length.isdecimal() and int(length[:20]) > limits.max_body_bytes:
        raise too_long
    try:
        return await within(
            limits.body_timeout_s, _read(receive, limits.max_body_bytes, too_long, hold)
        )
    except asyncio.TimeoutError:
        raise Refused(
            408, f"the body did not arrive within {limits.body_timeout_s:g} s (--body-timeout)",
            reason="slow"
        ) from None


async def _read(
    receive: Receive, most: int, too_long: Refused, hold: Callable[[int], None]
) -> bytes:
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            raise too_long
        hold(len(piece))
        pieces.append(piece)
        more = message.get("more_body", False)
    return b"".join(pieces)


# Rows or answers of one request, and row length times rows of token ids, which are padded to the
# longest row.
MAX_ROWS = 2048
MAX_PADDED_IDS = 1 << 20

# Estimates of the memory of a request until its answer has been sent: for each of its bytes, which
# several buffers hold, and for each of its values in Python. Tests compare them with measurements.
_COST_OF_BYTE = 4
_COST_OF_OBJECT = 300
_COST_OF_TEXT = 600
_COST_OF_NUMBER = 40

# The piece of a body whose parts are in memory at a time while its values are counted.
_PIECE_BYTES = 4 << 10

_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))


@dataclass(frozen=True)
class Structure:
    """The number of values in a JSON text."""

    size: int
    texts: int
    containers: int  # objects and arrays
    numbers: int  # an upper bound

    def cost(self) -> int:
        """Returns the bytes of memory that the request needs, at most."""
        return (self.size * _COST_OF_BYTE + self.texts * _COST_OF_TEXT
                + self.containers * _COST_OF_OBJECT + self.numbers * _COST_OF_NUMBER)


def structure_of(body: bytes, limits: Limits) -> Structure:
    """Counts the values of a JSON text in time proportional to its size, before a parser allocates
    objects for them. Refuses a text with too many values or levels."""
    # Without escaped quotes, every other part between quotes is outside of texts.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    texts = (plain.count(b'"') + 1) // 2
    too_many = Refused(
        400, f"the body has more than {limits.max_values} objects, arrays and texts",
        reason="size")
    if texts > limits.max_values:
        raise too_many
    outside = []
    first = 0  # the first part of the next piece that is outside of texts
    for at in range(0, len(plain), _PIECE_BYTES):
        parts = plain[at : at + _PIECE_BYTES].split(b'"')
        outside.append(b"".join(parts[first::2]).translate(None, _NOT_STRUCTURE))
        first = (first + len(parts) + 1) % 2
    tokens = b"".join(outside)
    commas = tokens.count(b",")
    brackets = tokens.replace(b",", b"")
    containers = (len(brackets) + 1) // 2
    if texts + containers > limits.max_values:
        raise too_many
    depth = 0
    for each in brackets:
        depth += 1 if each in b"[{" else -1
        if depth > limits.max_depth:
            raise Refused(400, f"the body is nested more than {limits.max_depth} levels deep",
                          reason="size")
    return Structure(len(body), texts, containers, commas + containers)


def parse_object(body: bytes, limits: Limits, hold: Callable[[int], None]) -> Fields:
    """Parses a body that must be a JSON object. `hold` is called with the memory that this needs,
    and may refuse it."""
    hold(structure_of(body, limits).cost())
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Refused(400, "the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    except ValueError:  # Python refuses integers of more than some thousand digits.
        raise Refused(400, "the body has a number with too many digits") from None
    return Fields(value)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Refused(400, "an object of the body has a duplicate key")
    return made


def _no_constant(name: str) -> float:
    raise Refused(400, f"the body has {name}, which is not a valid JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)

_NONE: Any = object()
_NO_LIMIT = 2**63  # of an integer; the daemon has the limits


class Fields:
    """The fields of a JSON object. Each is read once; `end` refuses fields that were not read.

    A field with the value null counts as absent. Errors name the path of the field, such as
    `messages[2].content`.
    """

    def __init__(self, value: Any, where: str = "") -> None:
        if not isinstance(value, dict):
            raise Refused(400, f"{where or 'the body'} is not an object", where or None)
        self._rest = {name: each for name, each in value.items() if each is not None}
        self._prefix = f"{where}." if where else ""

    def path(self, name: str) -> str:
        return self._prefix + name

    def copy(self) -> Fields:
        """Returns the fields that are not read yet, to be read again."""
        made = Fields(self._rest)
        made._prefix = self._prefix
        return made

    def has(self, name: str) -> bool:
        return name in self._rest

    def refuse(self, name: str, why: str, reason: str = "") -> Refused:
        return Refused(400, f"{self.path(name)} {why}", self.path(name), reason)

    def row_field(self, name: str) -> str:
        """Returns the name of a row of an unread field; see HttpCall.row_field."""
        value = self._rest.get(name)
        has_rows = isinstance(value, list) and value and not isinstance(value[0], (int, float))
        return f"{self.path(name)}[{{}}]" if has_rows else self.path(name)

    def take(self, name: str, default: Any = _NONE) -> Any:
        """Returns a field of any type."""
        value = self._rest.pop(name, default)
        if value is _NONE:
            raise self.refuse(name, "is missing")
        return value

    def text(self, name: str, default: Any = _NONE, most: int = 1 << 62) -> Any:
        """Returns a text field of at most `most` bytes of UTF-8."""
        value = self.take(name, default)
        return value if value is default else check_text(self.path(name), value, most)

    def word(self, name: str, words: Iterable[str], default: Any = _NONE) -> Any:
        """Returns a field whose value is one of `words`."""
        value = self.take(name, default)
        if value is not default and value not in tuple(words):
            expected = tuple(words)
            raise self.refuse(name, f"is not one of {', '.join(expected)}" if len(expected) > 1
                              else f"is not supported; expected {expected[0]}")
        return value

    def flag(self, name: str, default: Any = _NONE) -> Any:
        """Returns a field that is true or false."""
        value = self.take(name, default)
        if value is not default and not isinstance(value, bool):
            raise self.refuse(name, "is not true or false")
        return value

    def integer(
        self, name: str, default: Any = _NONE, least: int = 0, most: int = _NO_LIMIT
    ) -> Any:
        """Returns a field that is an integer in [least, most]."""
        value = self.take(name, default)
        if value is default:
            return value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            expected = f"of at least {least}" if most >= _NO_LIMIT else f"in [{least}, {most}]"
            raise self.refuse(name, f"is not an integer {expected}")
        return value

    def number(self, name: str, default: Any = _NONE) -> Any:
        """Returns a field that is a number, as a float."""
        value = self.take(name, default)
        return value if value is default else check_number(self.path(name), value)

    def items(self, name: str, default: Any = _NONE, most: int = 1 << 62) -> Any:
        """Returns a field that is a list of at most `most` values."""
        value = self.take(name, default)
        if value is default:
            return value
        if not isinstance(value, list):
            raise self.refuse(name, "is not a list")
        if len(value) > most:
            raise self.refuse(name, f"has {len(value)} values; at most {most} are allowed")
        return value

    def texts(self, name: str) -> list[str]:
        """Returns a field that is a list of texts, one for each row of the request."""
        values = self.items(name)
        if not values:
            raise self.refuse(name, "is empty")
        return check_texts(self.path(name), values)

    def objects(self, name: str, default: Any = _NONE, most: int = 1 << 62) -> Any:
        """Returns a field that is a list of at most `most` objects, as a list of Fields."""
        value = self.items(name, default, most)
        if value is default:
            return value
        return [Fields(each, f"{self.path(name)}[{i}]") for i, each in enumerate(value)]

    def object(self, name: str, default: Any = _NONE) -> Any:
        """Returns a field that is an object, as Fields."""
        value = self.take(name, default)
        return value if value is default else Fields(value, self.path(name))

    def token_ids(self, name: str, default: Any = _NONE) -> Any:
        """Returns a field that is a list of token ids."""
        value = self.items(name, default)
        return value if value is default else check_token_ids(self.path(name), value)

    def ignore(self, *names: str) -> None:
        """Reads fields that have no effect by the definition of their API."""
        for name in names:
            self._rest.pop(name, None)

    def accept(self, name: str, *values: Any, instead: str = "") -> None:
        """Reads a field that has no effect with one of `values`; refuses any other value.

        `instead` is a sentence that states what to use.
        """
        if self.take(name, values[0]) not in values:
            shown = " or ".join(map(json.dumps, values))
            more = f". {instead}" if instead else ""
            raise self.refuse(name, f"is not supported; leave it out, or send {shown}{more}")

    def scalars(self) -> Mapping[str, Any]:
        """Returns all unread fields. Each must be a text, a number or a boolean."""
        for name, value in self._rest.items():
            check_text(self.path(name), name)
            if isinstance(value, str):
                check_text(self.path(name), value)
            elif isinstance(value, float):
                check_number(self.path(name), value)
            elif not isinstance(value, (bool, int)):
                raise self.refuse(name, "is not a text, a number or a boolean")
            elif not -(2**63) <= value < 2**64:
                raise self.refuse(name, "does not fit in 64 bits")
        rest, self._rest = self._rest, {}
        return rest

    def end(self) -> None:
        """Refuses the request if a field was not read."""
        for name in self._rest:
            raise Refused(
                400, f"{self.path(name)[:100]!r} is not a supported field", self.path(name)
            )


def check_text(where: str, value: Any, most: int = 1 << 62) -> str:
    """Checks that `value` is a text of at most `most` bytes of UTF-8, and returns it."""
    if not isinstance(value, str):
        raise Refused(400, f"{where[:100]} is not a text", where)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        why = f"{where[:100]!r} is not valid Unicode: it has an unpaired surrogate"
        raise Refused(400, why, where) from None
    if size > most:
        raise Refused(400, f"{where} has {size} bytes; the limit is {most}", where)
    return value


def check_number(where: str, value: Any) -> float:
    """Checks that `value` is a finite number, and returns it as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(400, f"{where} is not a number", where)
    if not abs(value) <= sys.float_info.max:
        raise Refused(400, f"{where} is too large; expected a number in the range of a double",
                      where)
    return float(value)


def check_rows(where: str, rows: Sequence[Any]) -> None:
    """Checks the number of rows, and of token ids once the rows are padded to the longest."""
    if len(rows) > MAX_ROWS:
        raise Refused(400, f"{where} has {len(rows)} rows; at most {MAX_ROWS} are allowed. Split"
                      " the request", where, reason="size")
    padded = len(rows) * max((len(each) for each in rows if isinstance(each, list)), default=0)
    if padded > MAX_PADDED_IDS:
        raise Refused(400, f"{where} has {padded} token ids, as all rows are padded to the longest;"
                      f" at most {MAX_PADDED_IDS} are allowed. Split the request by length", where,
                      reason="size")


def check_texts(where: str, rows: Sequence[Any]) -> list[str]:
    """Checks that the rows of a request are texts, and returns them."""
    check_rows(where, rows)
    return [check_text(f"{where}[{i}]", each) for i, each in enumerate(rows)]


def size_of_prompt(prompt: Any) -> int:
    """Returns the bytes of a text or of token ids in a request to the daemon."""
    return len(prompt.encode()) if isinstance(prompt, str) else 4 * len(prompt)


def cost_of_prompts(prompts: Sequence[Any], copies: int) -> int:
    """Returns the bytes of memory for `copies` requests of each prompt."""
    return _COST_OF_BYTE * copies * sum(map(size_of_prompt, prompts))


def cost_of_padding(rows: Sequence[Any]) -> int:
    """Returns the bytes of memory for rows of token ids that are padded to the longest."""
    return _COST_OF_BYTE * 4 * len(rows) * max(map(len, rows))


def check_token_ids(where: str, value: Sequence[Any]) -> list[int]:
    """Checks that `value` is a list of token ids, and returns it."""
    for each in value:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < 2**31:
            raise Refused(400, f"{where} has a value that is not a token id; expected integers of"
                          " at least 0", where)
    return list(value)
