"""The client for asyncio. It has the methods of `Client` as coroutines."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    Coroutine,
    Iterable,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Union,
)

import grpc
import grpc.aio

from . import _protocol, messages, results, tasks
from . import options as kinds
from ._channel import Attempts, Defaults, Tls, closed, cut_off, open_channel
from .errors import SluiceError, error_of_rpc, late
from .retry import Retry
from .tasks import T, Task
from .tensors import Tensor
from .zero_shot import TEMPLATE

if TYPE_CHECKING:
    from typing_extensions import Unpack


async def within(seconds: Optional[float], work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`, or raises asyncio.TimeoutError after `seconds`, if given.

    Before Python 3.12, asyncio.wait_for ignores a cancellation that arrives after `work` has ended.
    """
    if sys.version_info >= (3, 11):
        async with asyncio.timeout(seconds):
            return await work
    if seconds is None:
        return await work
    task, is_late = asyncio.current_task(), False

    def end() -> None:
        nonlocal is_late
        assert task is not None
        is_late = task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, end)
    try:
        return await work
    except asyncio.CancelledError:
        if is_late:
            raise asyncio.TimeoutError from None
        raise
    finally:
        timer.cancel()


def _is_cancelled() -> bool:
    """Returns whether the current task is being cancelled. In Python 3.10, always returns true."""
    task = asyncio.current_task()
    return sys.version_info < (3, 11) or task is None or task.cancelling() > 0


class _Connection:
    """A channel, and the event loop that it belongs to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: grpc.aio.Channel) -> None:
        self.loop = loop
        self.channel = channel
        self.unary = {m: m.on(channel.unary_unary) for m in _protocol.UNARY}
        self.stream = _protocol.MODEL_STREAM_INFER.on(channel.unary_stream)


@kinds.check_names
class AsyncClient:
    """Calls a daemon from an event loop; see `Client`. Cancelling a task cancels its call.

    A client may be made before the loop runs. All calls must be made in the loop of the first one.

        async with AsyncClient("localhost:8001") as client:
            answer = await client.generate("demo", "In the beginning", max_tokens=40)

    At most `max_in_flight` requests are sent at once; other calls wait for their turn, so any
    number of calls may be started. The `timeout_s` of a call includes this time, and the client's
    `timeout_s` does not. None sends all calls at once.
    """

    _closed = False

    def __init__(
        self,
        address: str = "localhost:8001",
        *,
        tls: Optional[Tls] = None,
        token: Optional[str] = None,
        timeout_s: Optional[float] = 60.0,
        retry: Retry = Retry(),
        max_in_flight: Optional[int] = 64,
        channel_options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        if max_in_flight is not None and max_in_flight < 1:
            raise ValueError(f"max_in_flight is {max_in_flight}; expected at least 1, or None")
        self._slots = None if max_in_flight is None else asyncio.Semaphore(max_in_flight)
        self._defaults = Defaults.checked(address, timeout_s, token, retry)
        self._connection: Optional[_Connection] = None
        self._open = partial(open_channel, grpc.aio, address, tls, channel_options)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # The first call connects.
        self._connected()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncClient holds a connection and cannot be pickled or copied; make a"
                        " client in each process")

    def __enter__(self) -> NoReturn:
        raise TypeError("AsyncClient is used by `async with`; for `with`, use Client")

    def __exit__(self, *_: Any) -> None:
        pass

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Calls in progress raise Cancelled.

        In Python 3.10, they raise asyncio.CancelledError.
        """
        self._closed = True
        if self._connection is not None:
            await self._connection.channel.close()

    def _connected(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if self._connection is None:
            self._connection = _Connection(loop, self._open())
        elif self._connection.loop is not loop:
            raise RuntimeError("this AsyncClient belongs to another event loop, in which its first"
                               " call was made; make one client for each event loop")
        return self._connection

    @kinds.documented(kinds.GenerateOptions)
    async def generate(
        self, model: str, prompt: kinds.Prompt, *, max_tokens: int,
        token_bytes: bool = False, **options: Unpack[kinds.GenerateOptions],
    ) -> results.Generation:
        """Generates an answer to a prompt.

        With `token_bytes`, the answer also has the bytes of each token, and of its candidates.
        """
        kinds.check_options(kinds.GenerateOptions, options, "max_tokens", "token_bytes")
        task = tasks.generate(model, prompt, max_tokens, token_bytes, options)
        return await self._run(task, options)

    @kinds.documented(kinds.GenerateOptions)
    def stream(
        self, model: str, prompt: kinds.Prompt, *, max_tokens: int,
        token_bytes: bool = False, **options: Unpack[kinds.GenerateOptions],
    ) -> AsyncGenerator[results.Generation, None]:
        """Yields the parts of an answer while it is generated. Closing the iterator cancels it.

        The call starts when the first part is requested. It is retried only if it fails before the
        first part arrives.
        """
        kinds.check_options(kinds.GenerateOptions, options, "max_tokens", "token_bytes")
        request = messages.generate_request(model, prompt, max_tokens, token_bytes, options)
        return self._parts(request, options)

    @kinds.documented(kinds.PromptOptions)
    async def score(
        self, model: str, prompt: kinds.Prompt, **options: Unpack[kinds.PromptOptions]
    ) -> results.Score:
        """Returns the log-probability of each token of a prompt under a language model."""
        kinds.check_options(kinds.PromptOptions, options)
        return await self._run(tasks.score(model, prompt, options), options)

    @kinds.documented(kinds.EmbedOptions)
    async def embed(
        self, model: str, inputs: kinds.Prompts, **options: Unpack[kinds.EmbedOptions]
    ) -> results.Embeddings:
        """Returns a tensor [inputs, width] of embeddings."""
        kinds.check_options(kinds.EmbedOptions, options)
        return await self._run(tasks.embed(model, inputs, options), options)

    @kinds.documented(kinds.EmbedOptions)
    async def embed_tokens(
        self, model: str, inputs: kinds.Prompts, **options: Unpack[kinds.EmbedOptions]
    ) -> results.Results[Tensor]:
        """Returns a tensor [tokens, width] with the vector of each token, for each input."""
        kinds.check_options(kinds.EmbedOptions, options)
        return await self._run(tasks.embed_tokens(model, inputs, options), options)

    @kinds.documented(kinds.SparseOptions)
    async def embed_sparse(
        self, model: str, inputs: kinds.Prompts, **options: Unpack[kinds.SparseOptions]
    ) -> results.Results[dict[int, float]]:
        """Returns the SPLADE weight of each term, from a masked language model, for each input."""
        kinds.check_options(kinds.SparseOptions, options)
        return await self._run(tasks.embed_sparse(model, inputs, options), options)

    @kinds.documented(kinds.EncodeOptions)
    async def encode(
        self, model: str, inputs: kinds.Prompts,
        outputs: Union[kinds.EncodeOutput, Sequence[kinds.EncodeOutput]] = "dense",
        **options: Unpack[kinds.EncodeOptions],
    ) -> results.Results[results.Encoding]:
        """Returns several outputs of each input, from one pass of the model."""
        kinds.check_options(kinds.EncodeOptions, options, "outputs")
        return await self._run(tasks.encode(model, inputs, outputs, options), options)

    @kinds.documented(kinds.ClassifyOptions)
    async def classify(
        self, model: str, inputs: Union[kinds.Prompt, Iterable[Union[kinds.Prompt, kinds.Pair]]],
        **options: Unpack[kinds.ClassifyOptions],
    ) -> results.Results[results.Classification]:
        """Returns the probabilities of the classifier's labels for each input.

        activation="none" gives its logits.
        """
        kinds.check_options(kinds.ClassifyOptions, options)
        return await self._run(tasks.classify(model, inputs, options), options)

    @kinds.documented(kinds.PromptOptions)
    async def zero_shot(
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
        return await self._run(task, options)

    @kinds.documented(kinds.ClassifyOptions)
    async def tag(
        self, model: str, texts: kinds.Texts,
        **options: Unpack[kinds.ClassifyOptions],
    ) -> results.Results[list[results.Entity]]:
        """Returns the entities that a token classifier finds in each text."""
        kinds.check_options(kinds.ClassifyOptions, options)
        return await self._run(tasks.tag(model, texts, options), options)

    @kinds.documented(kinds.ExtractOptions)
    async def extract(
        self, model: str, texts: kinds.Texts,
        labels: Sequence[str], **options: Unpack[kinds.ExtractOptions],
    ) -> results.Results[list[results.Entity]]:
        """Returns the parts of each text that have one of the labels, by their places."""
        kinds.check_options(kinds.ExtractOptions, options)
        return await self._run(tasks.extract(model, texts, labels, options), options)

    @kinds.documented(kinds.TokenizeOptions)
    async def tokenize(
        self, model: str, texts: kinds.Texts,
        **options: Unpack[kinds.TokenizeOptions],
    ) -> results.Results[list[results.Token]]:
        """Returns the tokens of each text, with the special tokens that the model reads."""
        kinds.check_options(kinds.TokenizeOptions, options)
        return await self._run(tasks.tokenize(model, texts, options), options)

    @kinds.documented(kinds.RerankOptions)
    async def rerank(
        self, model: str, query: kinds.Prompt, documents: kinds.Prompts, *,
        top_n: Optional[int] = None, **options: Unpack[kinds.RerankOptions],
    ) -> results.Results[results.Ranked]:
        """Ranks documents by their relevance to the query, the best first.

        A cross-encoder scores each pair. An embedding model ranks by cosine similarity. Raises
        NotServed for other classifiers and for models that generate.
        """
        kinds.check_options(kinds.RerankOptions, options, "top_n")
        return await self._run(tasks.rerank(model, query, documents, top_n, options), options)

    @kinds.documented(kinds.RerankOptions)
    async def score_pairs(
        self, model: str, queries: kinds.Prompts, documents: Iterable[kinds.Prompt],
        **options: Unpack[kinds.RerankOptions],
    ) -> results.Results[float]:
        """Scores pairs of a query and a document as `rerank` does, in the order of the documents.

        There is one query for all documents, or one for each.
        """
        kinds.check_options(kinds.RerankOptions, options)
        task = tasks.score_pairs(model, queries, documents, options)
        return await self._run(task, options)

    @kinds.documented(kinds.RecommendOptions)
    async def recommend(
        self, model: str, history: Sequence[int], *, count: int = 10, exclude: Sequence[int] = (),
        candidates: Optional[Sequence[int]] = None, **options: Unpack[kinds.RecommendOptions],
    ) -> list[results.Recommendation]:
        """Returns the best next items after a history, from all items or from `candidates`.

        With `diversity`, the items also differ from each other; they are in order of selection.
        """
        kinds.check_options(kinds.RecommendOptions, options, "count", "exclude", "candidates")
        return await self._run(
            tasks.recommend(model, history, count, exclude, candidates, options), options
        )

    @kinds.documented(kinds.CallOptions)
    async def infer(
        self, model: str, inputs: Union[Tensor, Iterable[Tensor]], *,
        outputs: Union[str, Iterable[str]] = (),
        parameters: Mapping[str, Any] = {}, **options: Unpack[kinds.CallOptions],
    ) -> results.Answer:
        """Calls ModelInfer with any tensors and parameters."""
        kinds.check_options(kinds.CallOptions, options, "outputs", "parameters")
        task = tasks.infer(model, inputs, outputs, options, **parameters)
        return await self._run(task, options)

    @kinds.documented(kinds.CallOptions)
    async def models(
        self, *, ready: bool = False, **options: Unpack[kinds.CallOptions]
    ) -> list[results.IndexEntry]:
        """Lists the served models and the daemon's repository, or only the ready ones."""
        kinds.check_options(kinds.CallOptions, options, "ready")
        return await self._run(tasks.models(ready), options)

    @kinds.documented(kinds.CallOptions)
    async def metadata(self, model: str, **options: Unpack[kinds.CallOptions]) -> results.ModelInfo:
        """Returns the inputs, outputs and properties of a model."""
        kinds.check_options(kinds.CallOptions, options)
        return await self._run(tasks.metadata(model, options), options)

    @kinds.documented(kinds.CallOptions)
    async def model_ready(self, model: str, **options: Unpack[kinds.CallOptions]) -> bool:
        """Returns whether a model is ready. Returns false for a model that is not served."""
        kinds.check_options(kinds.CallOptions, options)
        return await self._run(tasks.model_ready(model, options), options)

    @kinds.documented(kinds.CallOptions)
    async def server_ready(self, **options: Unpack[kinds.CallOptions]) -> bool:
        """Returns whether the daemon is ready. Raises Unavailable if it cannot be reached.

        This call needs no credential.
        """
        kinds.check_options(kinds.CallOptions, options)
        return await self._run(tasks.server_ready(), options)

    @kinds.documented(kinds.CallOptions)
    async def server_info(self, **options: Unpack[kinds.CallOptions]) -> results.ServerInfo:
        """Returns the daemon's name, version and protocol extensions."""
        kinds.check_options(kinds.CallOptions, options)
        return await self._run(tasks.server_info(), options)

    async def _run(self, task: Task[T], options: Mapping[str, Any]) -> T:
        """Makes the calls of a task and returns the task's result."""
        return await self._finish(task, self._attempts(options))

    def _attempts(self, options: Mapping[str, Any]) -> Attempts:
        """Returns the attempts of a call that begins now."""
        if self._closed:
            raise closed()
        return Attempts(options, self._defaults)

    async def _finish(self, task: Task[T], attempts: Attempts) -> T:
        try:
            step = next(task)
            while True:
                answer: Any
                try:
                    if isinstance(step, tasks.Together):
                        answer = await self._together(step, attempts)
                    else:
                        answer = await self._answer(step, attempts)
                except SluiceError as error:
                    step = task.throw(error)
                else:
                    step = task.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _together(self, group: tasks.Together, attempts: Attempts) -> list[Any]:
        """Returns the results of tasks. The first error cancels all of them."""
        results: list[Any] = [None] * len(group.tasks)
        numbers = iter(range(len(group.tasks)))

        async def work() -> None:
            for number in numbers:  # All workers share the iterator.
                results[number] = await self._finish(group.tasks[number], attempts.part())

        works = [asyncio.ensure_future(work()) for _ in range(min(group.most, len(results)))]
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_EXCEPTION)
            for each in works:
                if each in done:
                    each.result()
        finally:
            for each in works:
                each.cancel()
            await asyncio.gather(*works, return_exceptions=True)
        return results

    async def _answer(self, call: tasks.Call, attempts: Attempts) -> _protocol.Message:
        if self._slots is None or call.method is not _protocol.MODEL_INFER:
            return await self._repeated(call, attempts)
        await self._take_slot(attempts)
        try:
            return await self._repeated(call, attempts)
        finally:
            self._slots.release()

    async def _take_slot(self, attempts: Attempts) -> None:
        assert self._slots is not None
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            await within(attempts.queue_s(), self._slots.acquire())
        except asyncio.TimeoutError:
            raise late("the deadline passed while the client's earlier calls were in flight"
                       " (max_in_flight)") from None

    async def _repeated(self, call: tasks.Call, attempts: Attempts) -> _protocol.Message:
        attempts.begin()
        while True:
            if self._closed:
                raise cut_off()
            try:
                return await self._connected().unary[call.method](
                    call.request, timeout=attempts.remaining_s(), metadata=attempts.metadata
                )
            except asyncio.CancelledError:
                self._check_open()
                raise
            except grpc.RpcError as caught:
                error = error_of_rpc(caught)
                if self._closed:
                    raise cut_off(error) from None
                delay = attempts.delay_s(error)
            await asyncio.sleep(delay)

    def _check_open(self) -> None:
        """Raises Cancelled if `close` has ended a call of this task."""
        if self._closed and not _is_cancelled():
            raise cut_off() from None

    async def _parts(
        self, request: _protocol.Message, options: Mapping[str, Any]
    ) -> AsyncGenerator[results.Generation, None]:
        attempts = self._attempts(options)
        begun = False
        # A stream has a slot until its first part, so a reader that stops cannot keep slots.
        slots = self._slots
        if slots is not None:
            await self._take_slot(attempts)
        try:
            attempts.begin()
            while True:
                if self._closed:
                    raise cut_off()
                call = self._connected().stream(
                    request, timeout=attempts.remaining_s(), metadata=attempts.metadata
                )
                try:
                    async for response in call:
                        part = messages.generation_of(messages.part_of(response))
                        begun = True
                        if slots is not None:
                            slots.release()
                            slots = None
                        yield part
                    return
                except asyncio.CancelledError:
                    self._check_open()
                    raise
                except (grpc.RpcError, SluiceError) as caught:
                    error = caught if isinstance(caught, SluiceError) else error_of_rpc(caught)
                    if self._closed:
                        raise cut_off(error) from None
                    if begun:
                        raise attempts.explained(error) from None
                    delay = attempts.delay_s(await self._finish(
                        tasks.error_without_head(request.model_name, error, options), attempts))
                finally:
                    call.cancel()
                await asyncio.sleep(delay)
        finally:
            if slots is not None:
                slots.release()
