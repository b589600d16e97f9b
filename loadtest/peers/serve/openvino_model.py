"""Compiles ONNX graphs with OpenVINO."""

import pathlib
from collections.abc import Sequence

import numpy as np


def compiled(graph: pathlib.Path, precision: str, threads: int,
             samples: Sequence[dict[str, np.ndarray]]):
    """Returns the graph compiled for throughput. For int8, NNCF chooses the scales of weights and
    activations from sample inputs.
    """
    import openvino
    core = openvino.Core()
    model = core.read_model(graph)
    if precision == "int8":
        import nncf
        model = nncf.quantize(model, nncf.Dataset(list(samples)),
                              model_type=nncf.ModelType.TRANSFORMER, subset_size=len(samples))
    elif precision == "int8_weights":
        import nncf
        model = nncf.compress_weights(model)
    return core.compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "THROUGHPUT",
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32"})
