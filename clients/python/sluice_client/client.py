"""The blocking client."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import (
    TYPE_CHECKING,
    Any,
    Generator,
    Iterable,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Union,
)

import grpc

from . import _protocol, messages, results, tasks
from . import options as kinds
from ._channel import Attempts, Defaults, Tls, closed, cut_off, open_channel
from .errors import SluiceError, error_of_rpc
from .retry import Retry
from .tasks import T, Task
from .tensors import Tensor
from .zero_shot import TEMPLATE

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _InFlight:
    """The requests of a list that several threads send. One thread can end all of them."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._calls: set[grpc.Future[Any]] = set()

    def answer(self, call: grpc.Future[Any]) -> _protocol.Message:
        """Waits for the answer. Raises FutureCancelledError if `end` was called."""
        with self._lock:
            self._calls.add(call)
        try:
            if self.ended.is_set():
                call.cancel()
            return call.result()
        finally:
            with self._lock:
                self._calls.discard(call)

    def end(self) -> None:
        self.ended.set()
        with self._lock:
            calls = list(self._calls)
        for each in calls:
            each.cancel()


@kinds.check_names
class Client:
    """Calls a daemon and blocks until it has answered. Threads may share a client.

        with Client("localhost:8001") as client:
            print(client.generate("demo", "In the beginning", max_tokens=40).text)

    `timeout_s` is the deadline of each request to the daemon, for calls that do not set their own;
    None means no deadline. `token` is sent as the
    caller's credential. `channel_options` are gRPC channel options, for instance
    `[("grpc.lb_policy_name", "round_robin")]`.

    Every method raises a SluiceError if its call fails.
    """

    def __init__(
        self,
        address: str = "localhost:8001",
        *,
        tls: Optional[Tls] = None,
        token: Optional[str] = None,
        timeout_s: Optional[float] = 60.0,
        retry: Retry = Retry(),
        channel_options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self._defaults = Defaults.checked(address, timeout_s, token, retry)
        self._channel = open_channel(grpc, address, tls, channel_options)
        self._unary = {m: m.on(self._channel.unary_unary) for m in _protocol.UNARY}
        # A stream has one request. A call of several would need a thread that sends them.
        self._stream = _protocol.MODEL_STREAM_INFER.on(self._channel.unary_stream)
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Client holds a connection and cannot be pickled or copied; make a client"
                        " in each process")

    async def __aenter__(self) -> NoReturn:
        raise TypeError("Client is used by `with`; for `async with`, use AsyncClient")

    async def __aexit__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Calls in progress raise Cancelled."""
        self._closed = True
        self._channel.close()

    @kinds.documented(kinds.GenerateOptions)
    def generate(
        self, model: str, prompt: kinds.Prompt, *, max_tokens: int,
        token_bytes: bool = False, **options: Unpack[kinds.GenerateOptions],
    ) -> results.Generation:
        """Generates an answer to a prompt.

        With `token_bytes`, the answer also has the bytes of each token, and of its candidates.
        """
        kinds.check_options(kinds.GenerateOptions, options, "max_tokens", "token_bytes")
        return self._run(tasks.generate(model, prompt, max_tokens, token_bytes, options), options)

    @kinds.documented(kinds.GenerateOptions)
    def stream(
        self, model: str, prompt: kinds.Prompt, *, max_tokens: int,
        token_bytes: bool = False, **options: Unpack[kinds.GenerateOptions],
    ) -> Generator[results.Generation, None, None]:
        """Yields the parts of an answer while it is generated. Closing the iterator cancels it.

        The call starts when the first part is requested. It is retried only if it fails before the
        first part arrives.
        """
        kinds.check_options(kinds.GenerateOptions, options, "max_tokens", "token_bytes")
        request = messages.generate_request(model, prompt, max_tokens, token_bytes, options)
        return self._parts(request, options)

    @kinds.documented(kinds.PromptOptions)
    def score(
        self, model: str, prompt: kinds.Prompt, **options: Unpack[kinds.PromptOptions]
    ) -> results.Score:
        """Returns the log-probability of each token of a prompt under a language model."""
        kinds.check_options(kinds.PromptOptions, options)
        return self._run(tasks.score(model, prompt, options), options)

    @kinds.documented(kinds.EmbedOptions)
    def embed(
        self, model: str, inputs: kinds.Prompts, **options: Unpack[kinds.EmbedOptions]
    ) -> results.Embeddings:
        """Returns a tensor [inputs, width] of embeddings."""
        kinds.check_options(kinds.EmbedOptions, options)
        return self._run(tasks.embed(model, inputs, options), options)

    @kinds.documented(kinds.EmbedOptions)
    def embed_tokens(
        self, model: str, inputs: kinds.Prompts, **options: Unpack[kinds.EmbedOptions]
    ) -> results.Results[Tensor]:
        """Returns a tensor [tokens, width] with the vector of each token, for each input."""
        kinds.check_options(kinds.EmbedOptions, options)
        return self._run(tasks.embed_tokens(model, inputs, options), options)

    @kinds.documented(kinds.SparseOptions)
    def embed_sparse(
        self, model: str, inputs: kinds.Prompts, **options: Unpack[kinds.SparseOptions]
    ) -> results.Results[dict[int, float]]:
        """Returns the SPLADE weight of each term, from a masked language model, for each input."""
        kinds.check_options(kinds.SparseOptions, options)
        return self._run(tasks.embed_sparse(model, inputs, options), options)

    @kinds.documented(kinds.EncodeOptions)
    def encode(
        self, model: str, inputs: kinds.Prompts,
        outputs: Union[kinds.EncodeOutput, Sequence[kinds.EncodeOutput]] = "dense",
        **options: Unpack[kinds.EncodeOptions],
    ) -> results.Results[results.Encoding]:
        """Returns several outputs of each input, from one pass of the model."""
        kinds.check_options(kinds.EncodeOptions, options, "outputs")
        return self._run(tasks.encode(model, inputs, outputs, options), options)

    @kinds.documented(kinds.ClassifyOptions)
    def classify(
        self, model: str, inputs: Union[kinds.Prompt, Iterable[Union[kinds.Prompt, kinds.Pair]]],
        **options: Unpack[kinds.ClassifyOptions],
    ) -> results.Results[results.Classification]:
        """Returns the probabilities of the classifier's labels for each input.

        activation="none" gives its logits.
        """
        kinds.check_options(kinds.ClassifyOptions, options)
        return self._run(tasks.classify(model, inputs, options), options)

    @kinds.documented(kinds.PromptOptions)
    def zero_shot(
        self, model: str, texts: kinds.Texts,
        candidate_labels: Iterable[str], *, hypothesis_template: str = TEMPLATE,
        multi_label: bool = False, **options: Unpack[kinds.PromptOptions],
    ) -> results.Results[results.ZeroShot]:
        """Returns the scores of candidate labels for each text, the highest first.

        The model must be trained for natural language inference. With `multi_label`, several
        labels may apply to a text; without it, the scores of a text's labels sum to 1.
        """
        kinds.check_options(kinds.PromptOptions, options, "hypothesis_template", "multi_label")
        task = tasks.zero_shot(
            model, texts, candidate_labels, hypothesis_template, multi_label, options)
        return self._run(task, options)

    @kinds.documented(kinds.ClassifyOptions)
    def tag(
        self, model: str, texts: kinds.Texts,
        **options: Unpack[kinds.ClassifyOptions],
    ) -> results.Results[list[results.Entity]]:
        """Returns the entities that a token classifier finds in each text."""
        kinds.check_options(kinds.ClassifyOptions, options)
        return self._run(tasks.tag(model, texts, options), options)

    @kinds.documented(kinds.ExtractOptions)
    def extract(
        self, model: str, texts: kinds.Texts,
        labels: Sequence[str], **options: Unpack[kinds.ExtractOptions],
    ) -> results.Results[list[results.Entity]]:
        """Returns the parts of each text that have one of the labels, by their places."""
        kinds.check_options(kinds.ExtractOptions, options)
        return self._run(tasks.extract(model, texts, labels, options), options)

    @kinds.documented(kinds.TokenizeOptions)
    def tokenize(
        self, model: str, texts: kinds.Texts,
        **options: Unpack[kinds.TokenizeOptions],
    ) -> results.Results[list[results.Token]]:
        """Returns the tokens of each text, with the special tokens that the model reads."""
        kinds.check_options(kinds.TokenizeOptions, options)
        return self._run(tasks.tokenize(model, texts, options), options)

    @kinds.documented(kinds.RerankOptions)
    def rerank(
        self, model: str, query: kinds.Prompt, documents: kinds.Prompts, *,
        top_n: Optional[int] = None, **options: Unpack[kinds.RerankOptions],
    ) -> results.Results[results.Ranked]:
        """Ranks documents by their relevance to the query, the best first.

        A cross-encoder scores each pair. An embedding model ranks by cosine similarity. Raises
        NotServed for other classifiers and for models that generate.
        """
        kinds.check_options(kinds.RerankOptions, options, "top_n")
        return self._run(tasks.rerank(model, query, documents, top_n, options), options)

    @kinds.documented(kinds.RerankOptions)
    def score_pairs(
        self, model: str, queries: kinds.Prompts, documents: Iterable[kinds.Prompt],
        **options: Unpack[kinds.RerankOptions],
    ) -> results.Results[float]:
        """Scores pairs of a query and a document as `rerank` does, in the order of the documents.

        There is one query for all documents, or one for each.
        """
        kinds.check_options(kinds.RerankOptions, options)
        task = tasks.score_pairs(model, queries, documents, options)
        return self._run(task, options)

    @kinds.documented(kinds.RecommendOptions)
    def recommend(
        self, model: str, history: Sequence[int], *, count: int = 10, exclude: Sequence[int] = (),
        candidates: Optional[Sequence[int]] = None, **options: Unpack[kinds.RecommendOptions],
    ) -> list[results.Recommendation]:
        """Returns the best next items after a history, from all items or from `candidates`.

        With `diversity`, the items also differ from each other; they are in order of selection.
        """
        kinds.check_options(kinds.RecommendOptions, options, "count", "exclude", "candidates")
        return self._run(
            tasks.recommend(model, history, count, exclude, candidates, options), options
        )

    @kinds.documented(kinds.CallOptions)
    def infer(
        self, model: str, inputs: Union[Tensor, Iterable[Tensor]], *,
        outputs: Union[str, Iterable[str]] = (),
        parameters: Mapping[str, Any] = {}, **options: Unpack[kinds.CallOptions],
    ) -> results.Answer:
        """Calls ModelInfer with any tensors and parameters."""
        kinds.check_options(kinds.CallOptions, options, "outputs", "parameters")
        task = tasks.infer(model, inputs, outputs, options, **parameters)
        return self._run(task, options)

    @kinds.documented(kinds.CallOptions)
    def models(
        self, *, ready: bool = False, **options: Unpack[kinds.CallOptions]
    ) -> list[results.IndexEntry]:
        """Lists the served models and the daemon's repository, or only the ready ones."""
        kinds.check_options(kinds.CallOptions, options, "ready")
        return self._run(tasks.models(ready), options)

    @kinds.documented(kinds.CallOptions)
    def metadata(self, model: str, **options: Unpack[kinds.CallOptions]) -> results.ModelInfo:
        """Returns the inputs, outputs and properties of a model."""
        kinds.check_options(kinds.CallOptions, options)
        return self._run(tasks.metadata(model, options), options)

    @kinds.documented(kinds.CallOptions)
    def model_ready(self, model: str, **options: Unpack[kinds.CallOptions]) -> bool:
        """Returns whether a model is ready. Returns false for a model that is not served."""
        kinds.check_options(kinds.CallOptions, options)
        return self._run(tasks.model_ready(model, options), options)

    @kinds.documented(kinds.CallOptions)
    def server_ready(self, **options: Unpack[kinds.CallOptions]) -> bool:
        """Returns whether the daemon is ready. Raises Unavailable if it cannot be reached.

        This call needs no credential.
        """
        kinds.check_options(kinds.CallOptions, options)
        return self._run(tasks.server_ready(), options)

    @kinds.documented(kinds.CallOptions)
    def server_info(self, **options: Unpack[kinds.CallOptions]) -> results.ServerInfo:
        """Returns the daemon's name, version and protocol extensions."""
        kinds.check_options(kinds.CallOptions, options)
        return self._run(tasks.server_info(), options)

    def _run(self, task: Task[T], options: Mapping[str, Any]) -> T:
        """Makes the calls of a task and returns the task's result."""
        return self._finish(task, self._attempts(options))

    def _attempts(self, options: Mapping[str, Any]) -> Attempts:
        """Returns the attempts of a call that begins now."""
        if self._closed:
            raise closed()
        return Attempts(options, self._defaults)

    def _finish(
        self, task: Task[T], attempts: Attempts, in_flight: Optional[_InFlight] = None
    ) -> T:
        try:
            step = next(task)
            while True:
                answer: Any
                try:
                    if isinstance(step, tasks.Together):
                        answer = self._together(step, attempts)
                    else:
                        answer = self._answer(step, attempts, in_flight)
                except SluiceError as error:
                    step = task.throw(error)
                else:
                    step = task.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _together(self, group: tasks.Together, attempts: Attempts) -> list[Any]:
        """Returns the results of tasks. The first error ends all of them."""
        results: list[Any] = [None] * len(group.tasks)
        numbers, lock = iter(range(len(group.tasks))), threading.Lock()
        in_flight = _InFlight()

        def work() -> None:
            while not in_flight.ended.is_set():
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                results[number] = self._finish(group.tasks[number], attempts.part(), in_flight)

        with ThreadPoolExecutor(min(group.most, len(results)), "sluice_client") as threads:
            try:
                works = [threads.submit(work) for _ in range(min(group.most, len(results)))]
                wait(works, return_when=FIRST_EXCEPTION)
                for each in works:
                    if each.done():
                        each.result()
            finally:
                in_flight.end()
        return results

    def _answer(
        self, call: tasks.Call, attempts: Attempts, in_flight: Optional[_InFlight]
    ) -> _protocol.Message:
        attempts.begin()
        method = self._unary[call.method]
        while True:
            try:
                if in_flight is None:
                    return self._start(method, call.request, attempts)
                return in_flight.answer(self._start(method.future, call.request, attempts))
            except grpc.RpcError as caught:
                error = error_of_rpc(caught)
                caught.__traceback__ = None  # See _parts.
            except grpc.FutureCancelledError as caught:
                raise caught.with_traceback(None)  # See _parts: its traceback has the call, too.
            if self._closed:
                raise cut_off(error)
            delay = attempts.delay_s(error)
            if in_flight is None:
                time.sleep(delay)
            elif in_flight.ended.wait(delay):
                raise error

    def _start(self, method: Any, request: _protocol.Message, attempts: Attempts) -> Any:
        """Calls `method`. Raises Cancelled if the client is closed, also by another thread."""
        if self._closed:
            raise cut_off()
        try:
            return method(request, timeout=attempts.remaining_s(), metadata=attempts.metadata)
        except ValueError:  # gRPC raises it if the channel is closed.
            if self._closed:
                raise cut_off() from None
            raise

    def _parts(
        self, request: _protocol.Message, options: Mapping[str, Any]
    ) -> Generator[results.Generation, None, None]:
        attempts = self._attempts(options)
        begun = False
        attempts.begin()
        while True:
            call = self._start(self._stream, request, attempts)
            try:
                for response in call:
                    part = messages.generation_of(messages.part_of(response))
                    begun = True
                    yield part
                return
            except grpc.RpcError as caught:
                error = error_of_rpc(caught)
                # The exception is the call itself. Its traceback would keep it until the process
                # ends, when its finalizer can wait for a lock of a thread that no longer runs.
                caught.__traceback__ = None
            except SluiceError as caught:
                error = caught
            finally:
                call.cancel()
                del call
            if self._closed:
                raise cut_off(error)
            if begun:
                raise attempts.explained(error)
            time.sleep(attempts.delay_s(self._finish(
                tasks.error_without_head(request.model_name, error, options), attempts)))
