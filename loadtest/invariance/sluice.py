"""Answers the scoreboard's requests with a daemon: each group as concurrent calls."""

import pathlib
import re
import urllib.request

import grpc
import numpy as np
import servers
import tritonclient.grpc as grpcclient
from company import Task, parts
from tritonclient.grpc import service_pb2

NAME = "model"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
TIMEOUT_S = 60
OUTPUTS = {"encoder": ["embedding"], "classifier": ["scores"],
           "decoder": ["output_ids", "logprobs"]}
# cpu.profile and the model's quantization; the checkpoints are stored in bf16.
PRECISIONS = {"f32": ("f32", "none"), "bf16": ("bf16", "none"), "int8": ("auto", "int8"),
              "int4": ("auto", "int4")}


def configuration(checkpoint: pathlib.Path, precision: str) -> str:
    return (f"models:\n  - name: {NAME}\n    path: {checkpoint}\n"
            f"    quantization: {PRECISIONS[precision][1]}\n")


class Daemon:
    """A context manager that runs one sluiced."""

    def __init__(self, sluiced: pathlib.Path, checkpoint: pathlib.Path, precision: str,
                 threads: int, processors: list[int], scratch: pathlib.Path):
        config = scratch / f"{precision}.yaml"
        config.write_text(configuration(checkpoint, precision))
        self.address, self._metrics = servers.free_address(), servers.free_address()
        self._server = servers.Server(
            [str(sluiced), "--config", str(config), "--server.grpc.address", self.address,
             "--server.metrics.address", self._metrics, "--server.admin.address=",
             f"--cpu.threads={threads}", f"--cpu.profile={PRECISIONS[precision][0]}",
             "--engine.batch.max-batch-tokens=1024"],
            self.address, processors, threads, scratch / f"{precision}.log", NAME)

    def __enter__(self) -> "Daemon":
        try:
            self._server.wait_ready(120)
        except servers.NotStarted:
            self._server.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def cpu_seconds(self) -> float:
        return self._server.cpu_seconds()

    def rows_of_a_step(self) -> float:
        """Returns the mean number of rows of all steps so far."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=10) as page:
            text = page.read().decode()
        rows, steps = (sum(float(value) for value in re.findall(
            rf"^sluice_batch_rows_{kind}{{[^}}]*}} (\S+)$", text, re.MULTILINE))
            for kind in ("sum", "count"))
        return rows / max(steps, 1)


class Caller:
    """Sends calls of one or more rows to a daemon concurrently."""

    def __init__(self, address: str, task: Task):
        self._task = task
        self._channel = grpc.insecure_channel(address)
        self._infer = self._channel.unary_unary(
            METHOD, service_pb2.ModelInferRequest.SerializeToString,
            service_pb2.ModelInferResponse.FromString)

    def _message(self, texts: list[np.ndarray]) -> service_pb2.ModelInferRequest:
        """Returns a request of several rows."""
        lengths = np.array([len(text) for text in texts], "<i4")
        rows = np.zeros((len(texts), lengths.max()), "<i4")
        for row, text in zip(rows, texts, strict=True):
            row[:len(text)] = text
        made = service_pb2.ModelInferRequest(
            model_name=NAME, raw_input_contents=[rows.tobytes(), lengths.tobytes()])
        made.inputs.add(name="input_ids", datatype="INT32", shape=rows.shape)
        made.inputs.add(name="input_lengths", datatype="INT32", shape=[len(texts), 1])
        for output in OUTPUTS[self._task.model]:
            made.outputs.add(name=output)
        if self._task.model == "decoder":
            made.parameters["max_tokens"].int64_param = self._task.new_tokens
            made.parameters["ignore_eos"].bool_param = True
        return made

    def ask(self, calls: list[list[np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """Makes all calls before waiting for the first answer. Returns the answers by row."""
        begun = [self._infer.future(self._message(texts), timeout=TIMEOUT_S) for texts in calls]
        return [answer for call in begun
                for answer in self._answers(grpcclient.InferResult(call.result()))]

    def _answers(self, result: grpcclient.InferResult) -> list[dict[str, np.ndarray]]:
        found = [result.as_numpy(each) for each in OUTPUTS[self._task.model]]
        if self._task.model != "decoder":
            return [{"values": row, "labels": np.int32(row.argmax())} for row in found[0]]
        tokens, logprobs = found
        if self._task.new_tokens == 1:
            return [{"values": value, "labels": token[0]}
                    for value, token in zip(logprobs, tokens, strict=True)]
        return [{"tokens": each} for each in tokens]


def answers_of(daemon: Daemon, task: Task, texts: list[np.ndarray],
               companies: list[list[list[int]]], seed: int) -> dict[str, np.ndarray]:
    """Returns the answers in the format of answer.py. A group is divided at random into calls of
    one or more rows.
    """
    caller, random = Caller(daemon.address, task), np.random.default_rng(seed)
    made: dict[str, list[np.ndarray]] = {}
    for groups in companies:
        found: list = [None] * len(texts)
        for group in groups:
            calls = parts(group, random)
            answers = caller.ask([[texts[number] for number in call] for call in calls])
            for number, answer in zip(group, answers, strict=True):
                found[number] = answer
        for kind in found[0]:
            made.setdefault(kind, []).append(np.stack([each[kind] for each in found]))
    return {kind: np.stack(answers) for kind, answers in made.items()}
