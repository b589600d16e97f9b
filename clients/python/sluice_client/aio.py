"""The client for asyncio. Its methods are those of `Client`, awaited."""

from __future__ import annotations

import asyncio
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    Iterable,
    Mapping,
    Optional,
    Sequence,
    Union,
)

import grpc
import grpc.aio

from . import _protocol, tasks
from ._channel import Attempts, Tls, open_channel
from .errors import SluiceError, error_of_rpc
from .retry import Retry
from .tasks import T, Task
from .tensors import Tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncClient:
    """Calls a daemon from an event loop; see `Client`. Cancelling a task cancels its call.

        async with AsyncClient("localhost:8001") as client:
            answer = await client.generate("demo", "In the beginning", max_tokens=40)
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
        self._channel = open_channel(grpc.aio, address, tls, channel_options)
        self._unary = {m: m.on(self._channel.unary_unary) for m in _protocol.UNARY}
        self._stream = _protocol.MODEL_STREAM_INFER.on(self._channel.stream_stream)
        self._defaults = (timeout_s, token, retry)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Calls in progress are cancelled."""
        await self._channel.close()

    async def generate(
        self, model: str, prompt: tasks.Prompt, *, max_tokens: int,
        **options: Unpack[tasks.GenerateOptions],
    ) -> tasks.Generation:
        """Generates an answer to a prompt."""
        tasks.check_options(tasks.GenerateOptions, options)
        return await self._run(tasks.generate(model, prompt, max_tokens, options), options)

    def stream(
        self, model: str, prompt: tasks.Prompt, *, max_tokens: int,
        **options: Unpack[tasks.GenerateOptions],
    ) -> AsyncGenerator[tasks.Generation, None]:
        """Yields the parts of an answer while it is generated. Closing the iterator cancels it.

        The call is made when the first part is asked for. It is repeated only if it failed before
        that part.
        """
        tasks.check_options(tasks.GenerateOptions, options)
        request = tasks.generate_request(model, prompt, max_tokens, options)
        return self._parts(request, options)

    async def score(
        self, model: str, prompt: tasks.Prompt, **options: Unpack[tasks.PromptOptions]
    ) -> tasks.Score:
        """Returns the log-probability that a language model gives to each token of a prompt."""
        tasks.check_options(tasks.PromptOptions, options)
        return await self._run(tasks.score(model, prompt, options), options)

    async def embed(
        self, model: str, inputs: Sequence[tasks.Prompt], **options: Unpack[tasks.EmbedOptions]
    ) -> tasks.Embeddings:
        """Returns a tensor [inputs, width] of embeddings."""
        tasks.check_options(tasks.EmbedOptions, options)
        return await self._run(tasks.embed(model, inputs, options), options)

    async def embed_sparse(
        self, model: str, inputs: Sequence[tasks.Prompt],
        **options: Unpack[tasks.SparseOptions],
    ) -> list[dict[int, float]]:
        """Returns the weights of the terms (SPLADE) that a masked language model gives inputs."""
        tasks.check_options(tasks.SparseOptions, options)
        return await self._run(tasks.embed_sparse(model, inputs, options), options)

    async def classify(
        self, model: str, inputs: Sequence[Union[tasks.Prompt, tasks.Pair]],
        **options: Unpack[tasks.ClassifyOptions],
    ) -> list[tasks.Classification]:
        """Returns the classifier's scores for each input."""
        tasks.check_options(tasks.ClassifyOptions, options)
        return await self._run(tasks.classify(model, inputs, options), options)

    async def tag(
        self, model: str, texts: Sequence[Union[str, bytes]],
        **options: Unpack[tasks.ClassifyOptions],
    ) -> list[list[tasks.Entity]]:
        """Returns the entities that a classifier of tokens finds in each text."""
        tasks.check_options(tasks.ClassifyOptions, options)
        return await self._run(tasks.tag(model, texts, options), options)

    async def rerank(
        self, model: str, query: tasks.Prompt, documents: Sequence[tasks.Prompt], *,
        top_n: Optional[int] = None, **options: Unpack[tasks.RerankOptions],
    ) -> list[tasks.Ranked]:
        """Ranks documents by their relevance to the query, the best first.

        A cross-encoder scores the pairs; otherwise cosines of embeddings are compared. Raises
        NotServed for other classifiers.
        """
        tasks.check_options(tasks.RerankOptions, options)
        return await self._run(tasks.rerank(model, query, documents, top_n, options), options)

    async def recommend(
        self, model: str, history: Sequence[int], *, count: int = 10, exclude: Sequence[int] = (),
        candidates: Optional[Sequence[int]] = None, **options: Unpack[tasks.RecommendOptions],
    ) -> list[tasks.Recommendation]:
        """Returns the items that follow a history best, of all items or of `candidates`.

        With `diversity` they are good and unlike each other, in the order in which they are chosen.
        """
        tasks.check_options(tasks.RecommendOptions, options)
        return await self._run(
            tasks.recommend(model, history, count, exclude, candidates, options), options
        )

    async def infer(
        self, model: str, inputs: Iterable[Tensor], *, outputs: Iterable[str] = (),
        parameters: Mapping[str, Any] = {}, **options: Unpack[tasks.CallOptions],
    ) -> tasks.Answer:
        """Calls ModelInfer with tensors and parameters, whatever they are."""
        tasks.check_options(tasks.CallOptions, options)
        task = tasks.infer(
            model, inputs, outputs, {**parameters, **tasks.parameters_of(options)},
            options.get("model_version", ""), options.get("request_id", ""),
        )
        return await self._run(task, options)

    async def models(
        self, *, ready: bool = False, **options: Unpack[tasks.CallOptions]
    ) -> list[tasks.IndexEntry]:
        """Lists the models that the daemon knows, or only those that are ready."""
        tasks.check_options(tasks.CallOptions, options)
        return await self._run(tasks.models(ready), options)

    async def metadata(self, model: str, **options: Unpack[tasks.CallOptions]) -> tasks.ModelInfo:
        """Returns what a model takes and returns."""
        tasks.check_options(tasks.CallOptions, options)
        return await self._run(tasks.metadata(model, options), options)

    async def model_ready(self, model: str, **options: Unpack[tasks.CallOptions]) -> bool:
        """Returns whether a model is ready; one that is not served is not."""
        tasks.check_options(tasks.CallOptions, options)
        return await self._run(tasks.model_ready(model, options), options)

    async def server_ready(self, **options: Unpack[tasks.CallOptions]) -> bool:
        """Returns whether the daemon is ready."""
        tasks.check_options(tasks.CallOptions, options)
        return await self._run(tasks.server_ready(), options)

    async def server_info(self, **options: Unpack[tasks.CallOptions]) -> tasks.ServerInfo:
        """Returns the daemon's name, version and extensions of the protocol."""
        tasks.check_options(tasks.CallOptions, options)
        return await self._run(tasks.server_info(), options)

    async def _run(self, task: Task[T], options: Mapping[str, Any]) -> T:
        """Makes the calls of a task, and returns its result."""
        attempts = Attempts(options, *self._defaults)
        try:
            call = next(task)
            while True:
                call = task.send(await self._answer(call, attempts))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _answer(self, call: tasks.Call, attempts: Attempts) -> _protocol.Message:
        while True:
            try:
                return await self._unary[call.method](
                    call.request, timeout=attempts.remaining_s(), metadata=attempts.metadata
                )
            except grpc.RpcError as error:
                delay = attempts.delay_s(error_of_rpc(error))
            await asyncio.sleep(delay)

    async def _parts(
        self, request: _protocol.Message, options: Mapping[str, Any]
    ) -> AsyncGenerator[tasks.Generation, None]:
        attempts = Attempts(options, *self._defaults)
        begun = False
        while True:
            call = self._stream(
                [request], timeout=attempts.remaining_s(), metadata=attempts.metadata
            )
            try:
                async for response in call:
                    part = tasks.generation_of(tasks.part_of(response))
                    begun = True
                    yield part
                return
            except (grpc.RpcError, SluiceError) as caught:
                error = caught if isinstance(caught, SluiceError) else error_of_rpc(caught)
                if begun:
                    raise error from None
                delay = attempts.delay_s(error)
            finally:
                call.cancel()
            await asyncio.sleep(delay)
