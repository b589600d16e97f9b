#!/usr/bin/env python3
"""Runs Triton, the server in PyTriton's wheel: dynamic, ragged batches into its Python backend."""

import os
import pathlib
import shutil
import sys
import tempfile

from pytriton.utils.distribution import get_libs_path, get_root_module_path, get_stub_path

import oip

# The backend's interpreter ignores PYTHONPATH.
MODULE = """
import sys
sys.path.insert(0, "{folder}")
from triton_model import {kind} as TritonPythonModel
"""
CONFIG = """
backend: "python"
max_batch_size: {max_rows}
input {{ name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }}
dynamic_batching {{ preferred_batch_size: {preferred} max_queue_delay_microseconds: {delay} }}
instance_group {{ kind: KIND_CPU count: 1 }}
"""
OUTPUT = 'output {{ name: "{}" data_type: TYPE_{} dims: [ -1 ] }}'
PARAMETER = 'parameters {{ key: "{}" value: {{ string_value: "{}" }} }}'


def arguments():
    parser = oip.arguments(__doc__)
    parser.add_argument("--queue-delay-us", type=int, default=0,
                        help="how long Triton holds back a request to fill its batch")
    parser.add_argument("--preferred", type=int, nargs="*", default=[],
                        help="batch sizes that Triton does not hold back")
    parser.add_argument("--kind", choices=("decoder", "encoder"), default="decoder")
    parser.add_argument("--precision", choices=("f32", "int8"), default="f32",
                        help="of an encoder")
    parser.add_argument("--output", default="embedding", help="name of an encoder's output")
    return parser.parse_args()


def write_graph(options) -> None:
    """Writes the model's graph if it is missing, because that takes longer than a backend's start
    may take.
    """
    checkpoint = pathlib.Path(options.checkpoint)
    if options.kind == "decoder":
        from onnx_model import export
        export(checkpoint)
    else:
        from encoder_engines import fused_graph
        fused_graph(checkpoint, options.precision)


def write_model(folder: pathlib.Path, options) -> None:
    decodes = options.kind == "decoder"
    model = folder / ("llama" if decodes else "encoder")
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(MODULE.format(
        folder=pathlib.Path(__file__).resolve().parent, kind=options.kind.title()))
    outputs = ([("output_ids", "INT32"), ("logprobs", "FP32")] if decodes else
               [(options.output, "FP32")])
    parameters = {"checkpoint": pathlib.Path(options.checkpoint).resolve()} | {
        name: getattr(options, name) for name in ("max_padding", "threads", "precision", "output")}
    (model / "config.pbtxt").write_text("\n".join([
        CONFIG.format(max_rows=options.max_rows, preferred=options.preferred,
                      delay=options.queue_delay_us),
        *(OUTPUT.format(*each) for each in outputs),
        *(PARAMETER.format(*each) for each in parameters.items())]))


def write_backend(folder: pathlib.Path) -> None:
    """Writes the backend with the stub for this Python version; the wheel has several."""
    backend = folder / "python"
    shutil.copytree(get_root_module_path() / "tritonserver" / "backends" / "python", backend)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(get_stub_path(version), backend / "triton_python_backend_stub")


def environment() -> dict[str, str]:
    python = pathlib.Path(sys.executable).parent
    return {**os.environ, "LD_LIBRARY_PATH": str(get_libs_path()), "CUDA_VISIBLE_DEVICES": "",
            "PATH": f"{python}:{os.environ['PATH']}"}


def main() -> None:
    options = arguments()
    write_graph(options)
    workspace = pathlib.Path(tempfile.mkdtemp(prefix="triton-"))
    write_model(workspace / "models", options)
    write_backend(workspace / "backends")
    host, port = options.address.rsplit(":", 1)
    binary = get_root_module_path() / "tritonserver" / "bin" / "tritonserver"
    os.execve(binary, [str(binary), f"--model-repository={workspace / 'models'}",
                       f"--backend-directory={workspace / 'backends'}", f"--grpc-address={host}",
                       f"--grpc-port={port}", "--allow-http=false", "--allow-metrics=false"],
              environment())


if __name__ == "__main__":
    main()
