"""Quantises a graph for onnxruntime: int8 weights by output channel, dynamic activations."""

import pathlib
import sys


def quantized(path: pathlib.Path) -> pathlib.Path:
    """Writes the quantised graph next to the other one if it is missing."""
    made = path.with_name(f"{path.stem}_int8.onnx")
    if not made.exists():
        # The library's tools import a module of theirs whose name is also in this folder.
        here = pathlib.Path(__file__).resolve().parent
        path_kept, module_kept = sys.path.copy(), sys.modules.pop("onnx_model", None)
        sys.path[:] = [each for each in sys.path if pathlib.Path(each).resolve() != here]
        from onnxruntime.quantization import QuantType, quantize_dynamic
        sys.path[:] = path_kept
        sys.modules.pop("onnx_model", None)
        if module_kept:
            sys.modules["onnx_model"] = module_kept
        quantize_dynamic(path, made, weight_type=QuantType.QInt8, per_channel=True,
                         extra_options={"DefaultTensorType": 1})  # FLOAT
    return made
