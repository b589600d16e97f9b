"""Open-loop load: calls start at scheduled times and do not wait for earlier calls."""

import asyncio
import collections
import dataclasses
import random

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc


def request(rng, max_tokens=0):
    """Returns a request with a random prompt that generates `max_tokens` tokens."""
    length = rng.randint(4, 48)
    tokens = np.array([rng.randrange(256) for _ in range(length)], np.int32)
    message = service_pb2.ModelInferRequest(model_name="demo")
    tensor = message.inputs.add(name="input_ids", datatype="INT32", shape=[1, length])
    tensor.contents.int_contents.extend(tokens.tolist())
    message.parameters["max_tokens"].int64_param = max_tokens
    return message


@dataclasses.dataclass
class Outcome:
    """The outcome of the calls.

    `codes` counts the statuses. `failures` has the details of each status other than OK. `versions`
    has the model version of each answer, in order of completion."""

    codes: collections.Counter
    failures: list
    versions: list
    max_in_flight: int

    @property
    def total(self):
        return self.codes.total()

    @property
    def failed(self):
        return len(self.failures)


async def run(address, per_second, count=None, seed=1, until=None, max_tokens=0):
    """Sends calls at exponentially distributed intervals and returns their outcome.

    It sends `count` calls, or continues until the event `until` is set."""
    rng = random.Random(seed)
    outcome = Outcome(collections.Counter(), [], [], 0)
    tasks = set()
    async with grpc.aio.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        async def call(message):
            try:
                answer = await stub.ModelInfer(message, timeout=60)
                outcome.codes["OK"] += 1
                outcome.versions.append(answer.model_version)
            except grpc.aio.AioRpcError as error:
                outcome.codes[error.code().name] += 1
                outcome.failures.append(f"{error.code().name}: {error.details()}")

        loop = asyncio.get_running_loop()
        due = loop.time()
        sent = 0
        while not until.is_set() if until else sent < count:
            due += rng.expovariate(per_second)
            await asyncio.sleep(max(0, due - loop.time()))
            task = loop.create_task(call(request(rng, max_tokens)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            outcome.max_in_flight = max(outcome.max_in_flight, len(tasks))
            sent += 1
        await asyncio.gather(*tasks)
    return outcome


def during(address, action, **load):
    """Runs `action` in a thread during open-loop load and returns the load's outcome."""

    async def both():
        done = asyncio.Event()
        calls = asyncio.create_task(run(address, until=done, **load))
        try:
            await asyncio.to_thread(action)
        finally:
            done.set()
        return await calls

    return asyncio.run(both())
