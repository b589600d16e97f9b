#!/usr/bin/env python3
"""Runs Triton, the server in PyTriton's wheel: dynamic, ragged batches into its Python backend."""

import os
import pathlib
import shutil
import sys
import tempfile

from pytriton.utils.distribution import get_libs_path, get_root_module_path, get_stub_path

import oip
from onnx_model import export

MODEL = "llama"
# The backend's interpreter ignores PYTHONPATH.
MODULE = """
import sys
sys.path.insert(0, "{folder}")
from triton_model import TritonPythonModel
"""
CONFIG = """
backend: "python"
max_batch_size: {max_rows}
input {{ name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }}
output {{ name: "output_ids" data_type: TYPE_INT32 dims: [ -1 ] }}
output {{ name: "logprobs" data_type: TYPE_FP32 dims: [ -1 ] }}
dynamic_batching {{ preferred_batch_size: {preferred} max_queue_delay_microseconds: {delay} }}
instance_group {{ kind: KIND_CPU count: 1 }}
parameters {{ key: "checkpoint" value: {{ string_value: "{checkpoint}" }} }}
parameters {{ key: "max_padding" value: {{ string_value: "{max_padding}" }} }}
parameters {{ key: "threads" value: {{ string_value: "{threads}" }} }}
"""


def arguments():
    parser = oip.arguments(__doc__)
    parser.add_argument("--queue-delay-us", type=int, default=0,
                        help="longest that Triton holds back a request for company")
    parser.add_argument("--preferred", type=int, nargs="*", default=[],
                        help="batch sizes that Triton does not hold back")
    return parser.parse_args()


def write_model(folder: pathlib.Path, options) -> None:
    version = folder / MODEL / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODULE.format(folder=pathlib.Path(__file__).resolve().parent))
    (folder / MODEL / "config.pbtxt").write_text(CONFIG.format(
        max_rows=options.max_rows, preferred=options.preferred, delay=options.queue_delay_us,
        checkpoint=pathlib.Path(options.checkpoint).resolve(), threads=options.threads,
        max_padding=options.max_padding))


def write_backend(folder: pathlib.Path) -> None:
    """Writes the backend with the stub of this Python; the wheel has one for each version."""
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
    export(pathlib.Path(options.checkpoint))
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
