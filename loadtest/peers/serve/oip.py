"""A minimal server of the Open Inference Protocol: token ids in, token ids out.

The input is `input_ids` (INT32 [1, n], raw) with the parameter `max_tokens`. The outputs are
`output_ids` (INT32 [1, t]) and, if the engine reports them, `logprobs` (FP32 [1, t]). If the client
gives up a call, the call is cancelled.
"""

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from batcher import Answer

Answering = Callable[[np.ndarray, int], Awaitable[Answer]]


def prompt_of(request: pb.ModelInferRequest) -> np.ndarray:
    """Returns the prompt of a request. Raises ValueError that names the problem."""
    if len(request.inputs) != 1 or request.inputs[0].name != "input_ids":
        raise ValueError("expected exactly one input, input_ids")
    if request.inputs[0].datatype != "INT32" or len(request.raw_input_contents) != 1:
        raise ValueError("input_ids must be INT32 in raw_input_contents")
    prompt = np.frombuffer(request.raw_input_contents[0], "<i4")
    if list(request.inputs[0].shape) != [1, len(prompt)] or not len(prompt):
        raise ValueError("input_ids must have the shape [1, n]")
    return prompt


def response_of(request: pb.ModelInferRequest, answer: Answer) -> pb.ModelInferResponse:
    response = pb.ModelInferResponse(model_name=request.model_name, id=request.id)

    def add(name: str, datatype: str, array: np.ndarray) -> None:
        response.outputs.add(name=name, datatype=datatype, shape=[1, len(array)])
        response.raw_output_contents.append(array.tobytes())

    add("output_ids", "INT32", np.array(answer.tokens, "<i4"))
    if answer.logprobs:
        add("logprobs", "FP32", np.array(answer.logprobs, "<f4"))
    return response


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, answer: Answering):
        self._answer = answer

    async def ServerLive(self, request, context):
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request, context):
        return pb.ServerReadyResponse(ready=True)

    async def ModelReady(self, request, context):
        return pb.ModelReadyResponse(ready=True)

    async def ModelInfer(self, request, context):
        try:
            prompt = prompt_of(request)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        max_tokens = request.parameters["max_tokens"].int64_param
        return response_of(request, await self._answer(prompt, max(max_tokens, 1)))


async def _serve(answer: Answering, address: str) -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Service(answer), server)
    if not server.add_insecure_port(address):
        raise OSError(f"cannot listen at {address}")
    await server.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop(grace=0)


def serve(answer: Answering, address: str) -> None:
    """Serves until SIGTERM."""
    asyncio.run(_serve(answer, address))


def arguments(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the arguments that all servers have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--checkpoint", required=True, help="folder that checkpoint.py wrote")
    parser.add_argument("--address", required=True, help="HOST:PORT to serve at")
    parser.add_argument("--threads", type=int, default=1, help="threads that compute")
    parser.add_argument("--max-rows", type=int, default=8, help="most prompts in a batch")
    parser.add_argument("--max-padding", type=float, default=0.25,
                        help="largest share of padding in a batch of prompts")
    return parser
