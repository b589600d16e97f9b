"""What a daemon takes of the machine, and requests to make it take some."""

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


def grown(server, before):
    """Bytes by which its most ever is above `before`; under sanitizers, which keep what is freed, a part of them."""
    return (resident(server) - before) / SLOWER


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))
