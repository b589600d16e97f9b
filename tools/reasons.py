"""Reads the table of reasons in base/reason.h."""

import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Reason(NamedTuple):
    enumerator: str
    name: str
    status: str  # the gRPC code, such as "INVALID_ARGUMENT"
    retryable: bool
    at_fault: str  # "caller" or "server"
    cause: str
    remedy: str


def reasons():
    """Returns the rows in their order."""
    text = (ROOT / "base" / "reason.h").read_text()
    table = text.split("kReasons[] = {", 1)[1].split("\n};", 1)[0]
    string = r'((?:\s*"[^"]*")+)'
    row = re.compile(r'\{Reason::(\w+),\s*"(\w+)",\s*absl::StatusCode::k(\w+),\s*(true|false),'
                     rf"\s*AtFault::k(\w+),{string},{string}\}}")
    found = []
    for enumerator, name, code, retryable, at_fault, cause, remedy in row.findall(table):
        cause, remedy = ("".join(re.findall(r'"([^"]*)"', text)) for text in (cause, remedy))
        status = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code).upper()
        found.append(Reason(enumerator, name, status, retryable == "true", at_fault.lower(),
                            cause, remedy))
    assert len(found) == table.count("Reason::"), "a row has another form"
    return found


def callers_codes():
    """Returns the statuses of which errors without a reason of their own are the caller's fault."""
    last = {reason.status: reason.at_fault for reason in reasons()}
    return sorted(status for status, at_fault in last.items() if at_fault == "caller")
