"""Helpers that create tritonclient's tensors and make calls."""

import struct

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2


def tensor(name, array, datatype):
    made = grpcclient.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def ids_inputs(rows, dtype=np.int32):
    """Returns the inputs for `rows` of token ids, right-padded, with input_lengths."""
    padded = np.zeros((len(rows), max(map(len, rows))), dtype)
    for row, ids in zip(padded, rows):
        row[: len(ids)] = ids
    lengths = np.array([[len(ids)] for ids in rows], np.int32)
    name = {np.int32: "INT32", np.int64: "INT64"}[dtype]
    return [tensor("input_ids", padded, name), tensor("input_lengths", lengths, "INT32")]


def text_inputs(*texts):
    return [tensor("text_input", np.array([[t.encode()] for t in texts], np.object_), "BYTES")]


def infer(client, inputs, outputs=None, model="demo", timeout=None, priority=0, **parameters):
    """Calls `model` and returns the outputs as {name: array}. `timeout` is in microseconds."""
    result = client.infer(
        model,
        inputs,
        outputs=outputs and [grpcclient.InferRequestedOutput(name) for name in outputs],
        timeout=timeout,
        priority=priority,
        parameters=parameters or None,
    )
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def logits_message(rows):
    """Returns a serialized call with one token per row; its answer, the logits, is far larger."""
    built = service_pb2.ModelInferRequest(model_name="demo")
    built.inputs.add(name="input_ids", datatype="INT32", shape=[rows, 1])
    built.raw_input_contents.append(struct.pack("<i", 1) * rows)
    built.parameters["max_tokens"].int64_param = 1
    built.outputs.add(name="logits")
    return built.SerializeToString()
