"""The contenders of encoders.py: servers that sluice-load calls, and libraries in process."""

import contextlib
import pathlib
import sys

import isa
import numpy as np
import servers
import tritonclient.grpc as grpcclient
from contest import Failed, Library

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import sluice_load  # noqa: E402

FIXED = [101, 7, 2003, 30521, 1, 999, 5000, 102]  # as in serve/encoder_peer.py
NAME = "encoder"
VOCABULARY = 30522
WARM_UP_S, SETTLE_S = 3.0, 1.5
SLUICE = {"f32": ("f32", "none"), "bf16": ("bf16", "none"), "int8": ("auto", "int8")}
TRITON = ("f32", "int8")
# A few texts keep one processor busy; more only add padding and waiting.
TRITON_BATCHES = ("--max-rows", 8, "--queue-delay-us", 1000, "--preferred", 4, 8)
# Engine, precision and batching rule.
LIBRARIES = (("onnxruntime", "f32", "similar"), ("onnxruntime", "int8", "similar"),
             ("tei", "f32", "prefix"), ("openvino", "f32", "similar"),
             ("openvino", "bf16", "similar"), ("openvino", "int8", "similar"),
             ("ctranslate2", "f32", "similar"), ("ctranslate2", "int8", "similar"),
             ("pytorch", "f32", "similar"), ("pytorch", "bf16", "similar"),
             ("llama_cpp", "f32", "similar"), ("llama_cpp", "q8_0", "similar"))


def output_of(options) -> str:
    return "scores" if options.traffic.name == "rerank" else "embedding"


class Server:
    """A server on the first processor, and sluice-load on the last."""

    batch = None  # the server makes its own batches

    def __init__(self, options, command: list, address: str, name: str, scratch: pathlib.Path,
                 stack: contextlib.ExitStack, metrics: str | None = None):
        self._options, self._out, self._metrics = options, scratch / "phase.json", metrics
        self._server = servers.Server(list(map(str, command)), address, options.processors[:1], 1,
                                      scratch / f"{name}.log", NAME)
        stack.callback(self._server.stop)
        self._server.wait_ready(120)
        # The libraries search their best batch in the same time. Sluice uses it to prepare plans
        # that its warm-up did not finish.
        self.closed(WARM_UP_S, 1)

    def answer(self) -> np.ndarray:
        output = output_of(self._options)
        with grpcclient.InferenceServerClient(self._server.address) as client:
            tensor = grpcclient.InferInput("input_ids", [1, len(FIXED)], "INT32")
            tensor.set_data_from_numpy(np.array([FIXED], np.int32))
            wanted = [grpcclient.InferRequestedOutput(output)]
            return client.infer(NAME, [tensor], outputs=wanted).as_numpy(output)[0]

    def _load(self, seconds: float, seed: int, *load) -> tuple[dict, dict]:
        """Returns sluice-load's figures, including those that a library also reports."""
        options, before = self._options, self._server.cpu_seconds()
        metrics = ["--metrics-url", self._metrics] if self._metrics else []
        command = ["taskset", "-c", options.processors[-1],
                   options.build / "loadtest" / "load" / "sluice-load", "run", "--server",
                   self._server.address, *metrics, "--model", NAME, "--outputs",
                   output_of(options), "--lengths", options.traffic.spec, "--cap",
                   options.traffic.cap, "--vocab", VOCABULARY, "--variants", 1 << 12, "--seed",
                   seed, "--warm-up", 0, "--duration", seconds, "--min-duration", seconds - 0.1,
                   "--min-calls", 1, "--quiet", *load]
        try:
            phase = sluice_load.report_of(command, self._out)["phases"][0]
        except RuntimeError as error:
            raise Failed(f"{error} ({self._server.state()})") from error
        # The processor time covers all answers, including answers after the last second.
        cpu_s = self._server.cpu_seconds() - before
        return phase, {
            "per_s": phase["answered_per_s"],
            "cpu_s_per_1000": 1000 * cpu_s / max(phase["outcomes"]["ok"], 1),
            "executed_efficiency": phase["server"]["executed_efficiency"] if metrics else None}

    def closed(self, seconds: float, seed: int) -> dict:
        return self._load(seconds, seed, "--concurrency", 64)[1]

    def open(self, seconds: float, seed: int, rate: float, objective_ms: float) -> dict:
        phase, figures = self._load(
            seconds, seed, "--rate", f"{rate:.2f}", "--objective-ms", objective_ms,
            "--deadline-ms", 2 * objective_ms)
        return figures | {
            "goodput_per_s": phase["goodput_per_s"], "within": phase["within_objective"],
            "p50_ms": phase["latency_ms"]["p50"], "p99_ms": phase["latency_ms"]["p99"]}

    def suspend(self) -> None:
        self._server.suspend()

    def resume(self) -> None:
        self._server.resume()


class Triton(Server):
    """Triton is never suspended, because a lock of its Python backend would time out and end the
    server. It waits without computing. After a minute of waiting its first answers are slow, so it
    answers for a short time before it is measured.
    """

    def suspend(self) -> None:
        pass

    def resume(self) -> None:
        self.closed(SETTLE_S, 1)


def sluice(options, precision: str, scratch: pathlib.Path, stack) -> Server:
    profile, quantization = isa.sluice(options.isa, SLUICE)[precision]
    config = scratch / f"{precision}.yaml"
    config.write_text(f"models:\n  - name: {NAME}\n    path: {options.checkpoint}\n"
                      f"    quantization: {quantization}\n")
    address, metrics = servers.free_address(), servers.free_address()
    command = [options.build / "server" / "sluiced", "--config", config, "--server.grpc.address",
               address, "--server.metrics.address", metrics, "--server.admin.address=",
               "--cpu.threads=1", f"--cpu.profile={profile}",
               "--engine.batch.max-batch-tokens=1024"]
    return Server(options, command, address, f"sluice-{precision}", scratch, stack, metrics)


def triton(options, precision: str, scratch: pathlib.Path, stack) -> Triton:
    if options.triton_python is None:
        raise servers.NotStarted("no --triton-python")
    isa.environment(options.isa, "triton", precision, None)
    address = servers.free_address()
    command = [options.triton_python, HERE / "serve" / "triton_server.py", "--kind", "encoder",
               "--checkpoint", options.checkpoint, "--precision", precision, "--output",
               output_of(options), "--address", address, *TRITON_BATCHES]
    return Triton(options, command, address, f"triton-{precision}", scratch, stack)


class LibraryEncoder(Library):
    def __init__(self, options, engine: str, precision: str, rule: str, scratch: pathlib.Path,
                 stack):
        python = options.llama_python if engine == "llama_cpp" else options.python
        super().__init__(
            python, HERE / "serve" / "encoder_peer.py",
            ["--engine", "onnxruntime" if engine == "tei" else engine, "--precision", precision,
             "--checkpoint", options.checkpoint, "--rule", rule, "--traffic",
             options.traffic.name],
            options.processors[0], scratch / f"{engine}-{precision}.log", stack,
            isa.environment(options.isa, engine, precision, python))
        self.batch = self.told["batch"]

    def answer(self) -> np.ndarray:
        return np.array(self.told["embedding"])

    def closed(self, seconds: float, seed: int) -> dict:
        return self.ask(seconds=seconds, seed=seed)

    def open(self, seconds: float, seed: int, rate: float, objective_ms: float) -> dict:
        return self.ask(seconds=seconds, seed=seed, rate=rate, objective_ms=objective_ms)


def makers(options, scratch: pathlib.Path, stack) -> dict:
    """Returns the functions that start the contenders, by name. `stack` gets their stops."""
    served = [("sluice", sluice, each) for each in isa.sluice(options.isa, SLUICE)] + [
        ("triton", triton, each) for each in TRITON]
    return {f"{name} {precision}": lambda make=make, precision=precision: make(
        options, precision, scratch, stack) for name, make, precision in served} | {
        f"{each[0]} {each[1]}": lambda each=each: LibraryEncoder(options, *each, scratch, stack)
        for each in LIBRARIES}
