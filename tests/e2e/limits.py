"""Measures a daemon's memory and file descriptors, and creates requests."""

import os
import re

from conftest import SLOWER
from tritonclient.grpc import service_pb2

MIB = 1 << 20


def request(text="And it came to pass", **parameters):
    made = service_pb2.ModelInferRequest(model_name="demo")
    tensor = made.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
    tensor.contents.bytes_contents.append(text.encode())
    for name, value in parameters.items():
        made.parameters[name].int64_param = value
    return made.SerializeToString()


def resident(server, which="VmHWM"):
    with open(f"/proc/{server.process.pid}/status") as status:
        return int(re.search(rf"{which}:\s+(\d+) kB", status.read()).group(1)) << 10


def resident_before(server):
    """Resets the peak of resident memory and returns the current value. Without the reset, the
    peak of the daemon's start would hide most faults."""
    with open(f"/proc/{server.process.pid}/clear_refs", "w") as control:
        control.write("5")
    return resident(server, "VmRSS")


def grown(server, before):
    """Returns by how many bytes the peak exceeds `before`, a result of resident_before.

    Sanitizers keep freed memory, so the difference is then divided by SLOWER."""
    return (resident(server) - before) / SLOWER


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))
