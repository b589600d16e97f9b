"""Answers the scoreboard's requests with a daemon, from as many callers at once as a company has
requests in a group.
"""

import concurrent.futures
import pathlib
import queue
import re
import urllib.request

import numpy as np
import servers
import tritonclient.grpc as grpcclient
from company import LARGEST_GROUP, Task

NAME = "model"
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

    def rows_of_a_step(self) -> float:
        """Returns the mean number of rows of all steps so far."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=10) as page:
            text = page.read().decode()
        rows, steps = (sum(float(value) for value in re.findall(
            rf"^sluice_batch_rows_{kind}{{[^}}]*}} (\S+)$", text, re.MULTILINE))
            for kind in ("sum", "count"))
        return rows / max(steps, 1)


class Callers:
    """Connections to a daemon, each used by one caller at a time."""

    def __init__(self, address: str, task: Task):
        self._task = task
        self._free: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(LARGEST_GROUP):
            self._free.put(grpcclient.InferenceServerClient(address))
        self._threads = concurrent.futures.ThreadPoolExecutor(LARGEST_GROUP)

    def ask_group(self, texts: list[np.ndarray]) -> list[dict[str, np.ndarray]]:
        return list(self._threads.map(self._ask, texts))

    def _ask(self, text: np.ndarray) -> dict[str, np.ndarray]:
        task = self._task
        tensor = grpcclient.InferInput("input_ids", [1, len(text)], "INT32")
        tensor.set_data_from_numpy(text[None])
        outputs, parameters = {
            "encoder": (["embedding"], {}), "classifier": (["scores"], {}),
            "decoder": (["output_ids", "logprobs"],
                        {"max_tokens": task.new_tokens, "ignore_eos": True}),
        }[task.model]
        client = self._free.get()
        try:
            result = client.infer(NAME, [tensor], parameters=parameters or None, outputs=[
                grpcclient.InferRequestedOutput(each) for each in outputs])
        finally:
            self._free.put(client)
        found = {each: result.as_numpy(each)[0] for each in outputs}
        if task.model == "decoder":
            if task.new_tokens == 1:
                return {"values": found["logprobs"], "labels": found["output_ids"][0]}
            return {"tokens": found["output_ids"]}
        values = found[outputs[0]]
        return {"values": values, "labels": np.int32(values.argmax())}


def answers_of(daemon: Daemon, task: Task, texts: list[np.ndarray],
               companies: list[list[list[int]]]) -> dict[str, np.ndarray]:
    """Returns the answers as answer.py writes them."""
    callers = Callers(daemon.address, task)
    made: dict[str, list[np.ndarray]] = {}
    for groups in companies:
        found: list = [None] * len(texts)
        for group in groups:
            for number, answer in zip(group, callers.ask_group([texts[each] for each in group]),
                                      strict=True):
                found[number] = answer
        for kind in found[0]:
            made.setdefault(kind, []).append(np.stack([each[kind] for each in found]))
    return {kind: np.stack(answers) for kind, answers in made.items()}
