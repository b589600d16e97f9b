"""The tasks of the client, without network calls; both clients share this module.

A task is a generator. It yields each call that it needs, receives the response or the call's error,
and returns the task's result. It may also yield several tasks to run together, and receives the
list of their results or the first error. `Client` makes the calls and blocks; `AsyncClient` awaits
them.
"""

from __future__ import annotations

import json
import math
import numbers
from operator import length_hint, mul
from typing import (
    Any,
    Callable,
    Generator,
    Iterable,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from . import _protocol, results, zero_shot as nli
from ._protocol import Message, Method
from .entities import entities_of, tokens_of
from .errors import InvalidArgument, ModelChanged, NotServed, SluiceError, naming_items
from .messages import (
    answer_of,
    check_kinds,
    check_pairs,
    generated_outputs,
    generation_of,
    id_rows,
    infer_request,
    is_text,
    pair_inputs,
    prompt_inputs,
    prompt_list,
)
from .options import EncodeOutput, Pair, Prompt, Prompts, Texts
from .tensors import Tensor

T = TypeVar("T")


class Call(NamedTuple):

    method: Union[Method, _protocol.Readiness]
    request: Message


class Together(NamedTuple):
    """Tasks that run together, at most `most` at a time."""

    tasks: Sequence[Generator[Any, Any, Any]]
    most: int


Task = Generator[Union[Call, Together], Any, T]


def infer(
    model: str, inputs: Union[Tensor, Iterable[Tensor]], outputs: Union[str, Iterable[str]],
    options: Mapping[str, Any], /, **parameters: Any,
) -> Task[results.Answer]:
    """Calls ModelInfer with these tensors and parameters."""
    request = infer_request(model, inputs, outputs, options, parameters)
    return answer_of((yield Call(_protocol.MODEL_INFER, request)))


# The most rows and bytes of a part of a list, if one item does not have more. Parts are small so
# that each is answered long before its deadline, and other calls are computed in between.
_PART_ROWS = 64
_PART_BYTES = 32 << 10
# The parts of a list in flight have about this many bytes: several of the daemon's largest steps.
_FLIGHT_BYTES = 128 << 10
_FLIGHT_PARTS = (2, 16)  # at least, at most


def _size(prompt: Any) -> int:
    """Returns about the bytes of a prompt in a request."""
    return len(prompt) if is_text(prompt) else 4 * length_hint(prompt)


def _slices(sizes: Sequence[int], items: int) -> list[slice]:
    """Divides a list into parts of at most `items` items, and of _PART_BYTES or one item."""
    made: list[slice] = []
    begin = size = 0
    for i, each in enumerate(sizes):
        size += each
        if i > begin and (i - begin == items or size > _PART_BYTES):
            made.append(slice(begin, i))
            begin, size = i, each
    return [*made, slice(begin, len(sizes))]


class Parts:
    """The answers to the requests that a list was split into."""

    def __init__(self, answers: list[results.Answer]) -> None:
        self._answers = answers
        self.prompt_tokens = self._sum("prompt_tokens")
        self.truncated_tokens = self._sum("truncated_tokens")

    def _sum(self, name: str) -> int:
        return sum(int(each.parameters.get(name, 0)) for each in self._answers)

    def tensors(self, name: str) -> list[Tensor]:
        made = [each.outputs[name] for each in self._answers]
        if name in ("embedding", "scores") and len({each.shape[1:] for each in made}) > 1:
            raise _changed(self._answers[0].model_name)
        return made

    def rows(self, name: str) -> list[Any]:
        """Returns the rows of an output, in the order of the inputs."""
        return [row for tensor in self.tensors(name) for row in tensor.tolist()]

    def has(self, name: str) -> bool:
        return name in self._answers[0].outputs

    def results(self, each: Iterable[T]) -> results.Results[T]:
        return results.Results(each, self.prompt_tokens, self.truncated_tokens)


class Rows(NamedTuple):
    """The rows of a request for some items: `each` for each item, and `once` for all of them."""

    each: int = 1
    once: int = 0
    shares: bool = False  # whether the items are pairs with the same first text, sent once

    def item(self, name: str, row: int, items: int) -> Optional[int]:
        """Returns the item of a row of `items` items; see naming_items.

        The last row of each item is behind all other rows.
        """
        if name in ("pair", "text_pair_input"):
            return row
        before = self.once + (self.each - 1) * items
        if row >= before and not self.shares:
            return row - before
        return None if self.once or self.shares else row

    def most(self, rows: int) -> int:
        """Returns the number of items that fit into `rows`, at least 1."""
        return max((rows - self.once) // self.each, 1)


def _changed(model: str) -> ModelChanged:
    return ModelChanged(
        f"the model {model} was reloaded with other content while the list was computed, so the"
        " results would be of two models; call again", "ABORTED")


def _fingerprint(model: str, options: Mapping[str, Any]) -> Task[str]:
    """Requests the fingerprint of a model's content. Returns an empty text if there is none."""
    try:
        return (yield from metadata(model, options)).properties.get("fingerprint", "")
    except SluiceError:  # The requests to the model report it.
        return ""


def _check_same(model: str, before: str, options: Mapping[str, Any]) -> Task[None]:
    """Raises ModelChanged if the model's content is not the one with this fingerprint."""
    if before and (yield from metadata(model, options)).properties.get("fingerprint") != before:
        raise _changed(model)


def _infer_rows(
    model: str, sizes: Sequence[int], inputs: Callable[[slice], list[Tensor]],
    outputs: Iterable[str], options: Mapping[str, Any],
    of_part: Callable[[slice], Mapping[str, Any]] = lambda part: {},
    rows: Rows = Rows(),
) -> Task[Parts]:
    """Computes the items of a list, which have these sizes in bytes. A long list takes several
    requests, and some of them are in flight together.

    `inputs` returns the inputs of a slice of the items, and `of_part` its own options. The answers
    have the same bits as the answer to one request, because no item depends on others.
    """
    most = rows.most(_PART_ROWS)  # items of a request
    before: Optional[str] = None  # the model's fingerprint, if there are several requests

    def compute(whole: slice) -> Task[list[results.Answer]]:
        """Computes a part. It takes several requests if one would exceed a limit of the daemon."""
        nonlocal before, most
        answers: list[results.Answer] = []
        begin = whole.start
        while begin < whole.stop:
            part = slice(begin, min(begin + most, whole.stop))
            items = part.stop - begin

            def item_of(name: str, row: int) -> Optional[int]:
                item = rows.item(name, row, items)
                return None if item is None else begin + item

            with naming_items(item_of):
                try:
                    answers.append((yield from infer(
                        model, inputs(part), outputs, {**options, **of_part(part)})))
                    begin = part.stop
                except InvalidArgument as error:
                    fewer = yield from _fewer_rows(model, items, rows, error, options)
                    most = min(most, fewer)
            if begin < part.stop and before is None:
                before = yield from _fingerprint(model, options)
        return answers

    parts = _slices(sizes, most)
    if len(parts) == 1:
        answers = yield from compute(parts[0])
        yield from _check_same(model, before or "", options)
        return Parts(answers)
    before = yield from _fingerprint(model, options)
    least, largest = _FLIGHT_PARTS
    together = max(least, min(largest, _FLIGHT_BYTES * len(parts) // max(sum(sizes), 1)))
    answered = yield Together([compute(part) for part in parts], together)
    yield from _check_same(model, before, options)
    return Parts([answer for part in answered for answer in part])


def _fewer_rows(
    model: str, items: int, of: Rows, error: InvalidArgument, options: Mapping[str, Any]
) -> Task[int]:
    """Returns a smaller number of items after a refusal, or raises it if it has another cause."""
    rows = items * of.each + of.once
    if items > 1 and error.reason in ("input", "request"):
        method = _protocol.MODEL_CONFIG
        version = options.get("model_version", "")
        try:
            response = yield Call(method, method.request(name=model, version=version))
        except SluiceError:
            raise error from None
        most = int(response.config.max_batch_size)
        if 0 < most < rows:
            return of.most(most)
        if error.reason == "request":  # Another limit, such as the size of the answer.
            return items // 2
    raise error


def generate(
    model: str, prompt: Prompt, max_tokens: int, token_bytes: bool, options: Mapping[str, Any]
) -> Task[results.Generation]:
    """Generates an answer."""
    answer = yield from _infer_head(
        model, prompt_inputs([prompt]), generated_outputs(token_bytes, options), options,
        max_tokens=max_tokens,
    )
    return generation_of(answer)


def _infer_head(
    model: str, inputs: Iterable[Tensor], outputs: Iterable[str], options: Mapping[str, Any], /,
    **parameters: Any,
) -> Task[results.Answer]:
    """Calls ModelInfer for outputs of the model's head. Raises NotServed if it has no head."""
    try:
        return (yield from infer(model, inputs, outputs, options, **parameters))
    except InvalidArgument as error:
        raise (yield from error_without_head(model, error, options)) from None


def error_without_head(
    model: str, error: SluiceError, options: Mapping[str, Any]
) -> Task[SluiceError]:
    """Returns the error of a request to a head: NotServed if the model has no head, else `error`.

    Without a head, the daemon refuses max_tokens, an input or an output with the reason of any
    other fault in it.
    """
    if error.reason not in ("parameter", "input", "output"):
        return error
    try:
        info = yield from metadata(model, options)
    except SluiceError:
        return error
    if any(each.name == "output_ids" for each in info.outputs):
        return error
    return NotServed(error.message, error.code, error.reason)


def score(model: str, prompt: Prompt, options: Mapping[str, Any]) -> Task[results.Score]:
    """Scores each token of a prompt."""
    answer = yield from _infer_head(
        model, prompt_inputs([prompt]), ["prompt_logprobs"], options, max_tokens=0
    )
    logprobs: list[Any] = answer.outputs["prompt_logprobs"].values()
    cut = int(answer.parameters.get("truncated_tokens", 0))
    return results.Score(logprobs, math.fsum(logprobs), cut)


def _infer_prompts(
    model: str, prompts: list[Prompt], outputs: Iterable[str], options: Mapping[str, Any]
) -> Task[Parts]:
    check_kinds(prompts)
    return (yield from _infer_rows(
        model, [*map(_size, prompts)], lambda part: prompt_inputs(prompts[part]), outputs, options
    ))


def embed(
    model: str, inputs: Prompts, options: Mapping[str, Any]
) -> Task[results.Embeddings]:
    """Computes one embedding per input."""
    prompts = prompt_list(inputs)
    try:
        parts = yield from _infer_prompts(model, prompts, ["embedding"], options)
    except InvalidArgument as error:
        if error.reason != "output":
            raise
        raise NotServed(f"the model {model} has no embeddings: {error}", "UNIMPLEMENTED") from error
    first, *others = parts.tensors("embedding")
    return results.Embeddings(
        first.name, first.datatype, (len(prompts), *first.shape[1:]),
        b"".join([first.raw, *(each.raw for each in others)]),
        parts.prompt_tokens, parts.truncated_tokens,
    )


def embed_tokens(
    model: str, inputs: Prompts, options: Mapping[str, Any]
) -> Task[results.Results[Tensor]]:
    """Computes the vector of each token of each input."""
    outputs = ["token_count", "token_embeddings"]
    parts = yield from _infer_prompts(model, prompt_list(inputs), outputs, options)
    counts = parts.rows("token_count")
    rows = (row for tensor in parts.tensors("token_embeddings") for row in tensor.rows())
    return parts.results(row.first(count) for row, (count,) in zip(rows, counts))


def embed_sparse(
    model: str, inputs: Prompts, options: Mapping[str, Any]
) -> Task[results.Results[dict[int, float]]]:
    """Computes the weights of vocabulary terms for each input."""
    try:
        parts = yield from sparse(model, prompt_list(inputs), options)
    except InvalidArgument as error:
        if error.reason != "output":
            raise
        raise NotServed(f"the model {model} has no sparse embeddings; they need a masked language "
                        "model's head", "UNIMPLEMENTED") from error
    return parts.results(_terms(parts))


def _terms(parts: Parts) -> list[dict[int, float]]:
    return [
        {term: weight for term, weight in zip(*row) if term >= 0}
        for row in zip(parts.rows("sparse_ids"), parts.rows("sparse_weights"))
    ]


def sparse(model: str, prompts: Sequence[Prompt], options: Mapping[str, Any]) -> Task[Parts]:
    """Computes the ids of vocabulary terms and their weights for each prompt."""
    outputs = ["sparse_ids", "sparse_weights"]
    return (yield from _infer_prompts(model, list(prompts), outputs, options))


_OUTPUTS_OF: Mapping[str, Sequence[str]] = {
    "dense": ["embedding"],
    "sparse": ["sparse_ids", "sparse_weights"],
    "vectors": ["vectors", "vector_count"],
    "spans": ["span_embeddings", "span_count"],
}


def encode(
    model: str, inputs: Prompts, outputs: Union[EncodeOutput, Sequence[EncodeOutput]],
    options: Mapping[str, Any],
) -> Task[results.Results[results.Encoding]]:
    """Computes several outputs of each input in one pass."""
    wanted = [outputs] if isinstance(outputs, str) else list(outputs)
    unknown = [each for each in wanted if each not in _OUTPUTS_OF]
    if unknown or not wanted:
        raise ValueError(f"outputs are {wanted}; expected some of {', '.join(_OUTPUTS_OF)}")
    prompts = prompt_list(inputs)
    spans = options.get("spans")
    if spans is not None and len(spans) != len(prompts):
        raise ValueError(f"spans has lists for {len(spans)} inputs; there are {len(prompts)}")
    check_kinds(prompts)
    parts = yield from _infer_rows(
        model, [*map(_size, prompts)], lambda part: prompt_inputs(prompts[part]),
        [name for each in wanted for name in _OUTPUTS_OF[each]], options,
        lambda part: {} if spans is None else {"spans": spans[part]})
    made: dict[str, list[Any]] = {}
    if "dense" in wanted:
        made["dense"] = [row for tensor in parts.tensors("embedding") for row in tensor.rows()]
    if "sparse" in wanted:
        made["sparse"] = _terms(parts)
    for kind, name, count in (("vectors", "vectors", "vector_count"),
                              ("spans", "span_embeddings", "span_count")):
        if kind in wanted:
            rows = (row for tensor in parts.tensors(name) for row in tensor.rows())
            made[kind] = [row.first(most) for row, (most,) in zip(rows, parts.rows(count))]
    return parts.results(
        results.Encoding(**dict(zip(made, row))) for row in zip(*made.values()))


def classify(
    model: str, inputs: Union[Prompt, Iterable[Union[Prompt, Pair]]], options: Mapping[str, Any]
) -> Task[results.Results[results.Classification]]:
    """Classifies each input, a prompt or a pair of texts. Without an activation, the scores are
    probabilities."""
    if isinstance(inputs, tuple) and len(inputs) == 2 and all(map(is_text, inputs)):
        raise TypeError("the inputs are a tuple of two texts; pass a list of one pair, [(a, b)], or"
                        " of two texts, [a, b]")
    rows: list[Any] = prompt_list(inputs)  # type: ignore[arg-type]
    pairs = [isinstance(each, tuple) and any(map(is_text, each)) for each in rows]
    for i, each in enumerate(rows):
        if isinstance(each, list) and each and all(map(is_text, each)):
            raise TypeError(f"input [{i}] is {repr(each)[:100]}; pass a pair as a tuple, such as"
                            " [(a, b)]")
    if any(pairs) and not all(pairs):
        raise TypeError("the inputs mix pairs and single prompts; send them in two calls")

    if any(pairs):
        check_pairs(rows)
    else:
        check_kinds(rows)

    def tensors(part: slice) -> list[Tensor]:
        return pair_inputs(*zip(*rows[part])) if any(pairs) else prompt_inputs(rows[part])

    sizes = [sum(map(_size, each)) if any(pairs) else _size(each) for each in rows]
    if options.get("activation") is None:
        info = yield from metadata(model, options)
        options = {**options, "activation": info.properties.get("probabilities")}
    parts = yield from _infer_rows(model, sizes, tensors, (), options)
    if not parts.has("scores"):
        raise NotServed(f"the model {model} has no classifier", "UNIMPLEMENTED")
    scores = parts.rows("scores")
    names = parts.rows("label") if parts.has("label") else [[b""]] * len(scores)
    return parts.results(
        results.Classification(max(range(len(row)), key=row.__getitem__), row, name.decode())
        for row, (name,) in zip(scores, names)
    )


def zero_shot(
    model: str, texts: Texts,
    candidate_labels: Iterable[str], hypothesis_template: str, multi_label: bool,
    options: Mapping[str, Any],
) -> Task[results.Results[results.ZeroShot]]:
    """Classifies each text by labels that the model has not been trained for."""
    labels = list(candidate_labels) if not isinstance(candidate_labels, str) else candidate_labels
    hypotheses = nli.hypotheses_of(labels, hypothesis_template)
    listed: list[Any] = prompt_list(texts)
    nli.check_texts(listed)
    info = yield from metadata(model, options)
    places = nli.places_of(info)
    raw = {**options, "activation": "none"}
    found: list[results.ZeroShot] = []
    tokens = [0, 0]

    def text_of(name: str, row: int) -> Optional[int]:
        return None if name == "text_pair_input" else len(found) + row // len(hypotheses)

    groups = [*nli.groups_of(listed, len(hypotheses))]
    for group in groups:
        # The rows of a text are neighbours. A single text is sent once.
        pairs = [(text, each) for text in group for each in hypotheses]

        def inputs(part: slice) -> list[Tensor]:
            firsts, seconds = zip(*pairs[part])
            return pair_inputs(firsts if len(group) > 1 else group, seconds)

        with naming_items(text_of):
            parts = yield from _infer_rows(
                model, [sum(map(_size, pair)) for pair in pairs], inputs, ["scores"], raw,
                rows=Rows(shares=len(group) == 1))
        tokens = [tokens[0] + parts.prompt_tokens, tokens[1] + parts.truncated_tokens]
        logits = parts.rows("scores")
        found += (nli.ranked(labels, logits[i : i + len(labels)], places, multi_label)
                  for i in range(0, len(logits), len(labels)))
    if len(groups) > 1:
        yield from _check_same(model, info.properties.get("fingerprint", ""), options)
    return results.Results(found, *tokens)


def tag(
    model: str, texts: Texts, options: Mapping[str, Any]
) -> Task[results.Results[list[results.Entity]]]:
    """Finds the entities of each text."""
    outputs = ["token_count", "token_scores", "token_labels", "token_offsets"]
    listed: list[Any] = prompt_list(texts)
    info = yield from metadata(model, options)
    if not {*outputs} <= {each.name for each in info.outputs}:
        raise NotServed(f"the model {model} has no token classifier with named labels",
                        "UNIMPLEMENTED")
    parts = yield from _infer_prompts(
        model, listed, outputs, {"activation": "softmax", **options})
    return parts.results(
        entities_of(text if isinstance(text, bytes) else text.encode(), *(
            column[:count] for column in (scores, labels, offsets)))
        for text, (count,), scores, labels, offsets in zip(listed, *map(parts.rows, outputs))
    )


def extract(
    model: str, texts: Texts, labels: Sequence[str],
    options: Mapping[str, Any],
) -> Task[results.Results[list[results.Entity]]]:
    """Finds the parts of each text that have one of the labels."""
    if isinstance(labels, str) or not labels:
        raise ValueError("labels is empty or a text; pass a list of labels")
    names = list(labels)
    outputs = ["extracted_count", "extracted_spans", "extracted_labels", "extracted_scores"]
    listed: list[Any] = prompt_list(texts)
    info = yield from metadata(model, options)
    if not {*outputs} <= {each.name for each in info.outputs}:
        raise NotServed(f"the model {model} does not extract parts of texts", "UNIMPLEMENTED")
    parts = yield from _infer_prompts(model, listed, outputs, {**options, "labels": names})

    def entities(text: Any, count: int, *columns: Tensor) -> list[results.Entity]:
        whole = text.decode(errors="replace") if isinstance(text, bytes) else text
        return [results.Entity(names[label], score, begin, end, whole[begin:end])
                for (begin, end), label, score in zip(*(
                    column.first(count).tolist() for column in columns))]

    # A row is padded to the row with the most parts, so only its own parts become lists.
    columns = ((row for tensor in parts.tensors(name) for row in tensor.rows())
               for name in outputs[1:])
    return parts.results(
        entities(text, count, *of_row)
        for text, (count,), *of_row in zip(listed, parts.rows(outputs[0]), *columns))


def tokenize(
    model: str, texts: Texts, options: Mapping[str, Any]
) -> Task[results.Results[list[results.Token]]]:
    """Encodes each text with the model's tokenizer."""
    outputs = ["token_count", "token_ids", "token_offsets"]
    listed: list[Any] = prompt_list(texts)
    parts = yield from _infer_prompts(model, listed, outputs, options)
    rows = zip(listed, *map(parts.rows, outputs))
    return parts.results(
        tokens_of(text if isinstance(text, bytes) else text.encode(), ids[:count], offsets[:count])
        for text, (count,), ids, offsets in rows
    )


def rerank(
    model: str, query: Prompt, documents: Prompts, top_n: Optional[int],
    options: Mapping[str, Any],
) -> Task[results.Results[results.Ranked]]:
    """Ranks documents by a cross-encoder's scores of the pairs (query, document).

    A multi-vector model ranks documents by MaxSim. Another model without a classifier ranks them by
    the cosine of their embeddings and the query's embedding. If the model has prompts for queries
    and documents, they are used.

    Raises NotServed for a classifier with several labels, because none is the score of a pair, for
    a classifier that does not accept pairs, and for a model that generates: the states of such a
    model were not trained to be compared, so their cosines would rank at random.
    """
    if top_n is not None:
        _check_count("top_n", top_n, 0)
    scores = yield from score_pairs(model, [query], prompt_list(documents), options)
    ranked = [results.Ranked(index, score) for index, score in enumerate(scores)]
    best = sorted(ranked, key=lambda each: -each.score)[:top_n]
    return results.Results(best, scores.prompt_tokens, scores.truncated_tokens)


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}; expected an integer of at least {least}")


def score_pairs(
    model: str, queries: Prompts, documents: Iterable[Prompt], options: Mapping[str, Any]
) -> Task[results.Results[float]]:
    """Scores pairs of a query and a document as `rerank` does, in the order of the documents.

    There is one query for all documents, or one for each.
    """
    if is_text(documents):
        raise TypeError("documents must be a list; pass [document] for one document")
    queries, documents = prompt_list(queries), prompt_list(documents)
    if len(queries) not in (1, len(documents)):
        raise ValueError(f"{len(queries)} queries do not fit {len(documents)} documents; pass one"
                         " query, or one for each document")
    info = yield from metadata(model, options)
    labels = [output.shape[-1] for output in info.outputs if output.name == "scores"]
    if not labels and info.properties.get("task") == "generate":
        raise NotServed(
            f"the model {model} generates text, and its files do not state that it makes"
            " embeddings to compare; rerank with a cross-encoder or an embedding model, add the"
            " model's modules.json, or set sluice.embedding in its config.json",
            "UNIMPLEMENTED",
        )
    if any(output.name == "vectors" for output in info.outputs):
        return (yield from _max_sim(model, queries, documents, options))
    if not labels:
        return (yield from _cosines(model, queries, documents, info, options))
    if labels != [1] or all(each.name != "text_pair_input" for each in info.inputs):
        raise NotServed(
            f"the classifier of the model {model} has {labels[0]} labels and cannot score a pair of"
            " texts; rerank with a cross-encoder or an embedding model",
            "UNIMPLEMENTED",
        )

    def inputs(part: slice) -> list[Tensor]:
        return pair_inputs(queries if len(queries) == 1 else queries[part], documents[part])

    parts = yield from _infer_rows(
        model, [*map(_size, documents)], inputs, ["scores"], options,
        rows=Rows(shares=len(queries) == 1))
    return parts.results(score for (score,) in parts.rows("scores"))


def _max_sim(
    model: str, queries: Sequence[Prompt], documents: Sequence[Prompt], options: Mapping[str, Any]
) -> Task[results.Results[float]]:
    def inputs(part: slice) -> list[Tensor]:
        return pair_inputs(queries if len(queries) == 1 else queries[part], documents[part])

    # Each query is a row, too.
    rows = Rows(once=1) if len(queries) == 1 else Rows(each=2)
    unused = {"pooling": None, "dimensions": None, "activation": None}
    parts = yield from _infer_rows(
        model, [*map(_size, documents)], inputs, ["maxsim"], {**options, **unused}, rows=rows)
    return parts.results(score for (score,) in parts.rows("maxsim"))


# The tasks of a checkpoint whose adapters embed queries and documents.
_QUERY_TASK, _DOCUMENT_TASK = "retrieval.query", "retrieval.passage"


def _sides(
    model: str, info: results.ModelInfo
) -> Optional[list[tuple[str, Mapping[str, Any]]]]:
    """Returns the model and the options for queries, and those for documents; None if both are
    embedded in the same way."""
    tasks = json.loads(info.properties.get("task_adapters", "[]"))
    if ":" not in model and {_QUERY_TASK, _DOCUMENT_TASK} <= {*tasks}:
        return [(f"{model}:{task}", {}) for task in (_QUERY_TASK, _DOCUMENT_TASK)]
    prompts = json.loads(info.properties.get("prompts", "[]"))
    names = ("query", "document")
    if not {*names} & {*prompts}:
        return None
    return [(model, {"prompt_name": name if name in prompts else ""}) for name in names]


def _cosines(
    model: str, queries: Sequence[Prompt], documents: Sequence[Prompt], info: results.ModelInfo,
    options: Mapping[str, Any],
) -> Task[results.Results[float]]:
    if options.get("instruction"):
        raise NotServed(f"the model {model} compares embeddings and takes no instruction",
                        "UNIMPLEMENTED")
    unit = {**options, "normalize": True, "activation": None}
    only = len(queries) == 1

    def document_of(name: str, row: int) -> Optional[int]:
        return row - len(queries) if row >= len(queries) else None if only else row

    sides = _sides(model, info)
    if sides is None:
        with naming_items(document_of):
            embedded = [(yield from embed(model, [*queries, *documents], unit))]
    else:
        (query_model, of_query), (document_model, of_document) = sides
        with naming_items(document_of):
            embedded = [(yield from embed(query_model, list(queries), {**unit, **of_query}))]
        embedded.append((
            yield from embed(document_model, list(documents), {**unit, **of_document})))
        yield from _check_same(model, info.properties.get("fingerprint", ""), options)
    vectors = [vector for each in embedded for vector in each.rows()]
    firsts, others = vectors[: len(queries)], vectors[len(queries) :]
    one = firsts[0].values() if len(firsts) == 1 else None
    firsts *= len(others) if one else 1
    return results.Results(
        (math.fsum(map(mul, one or first.values(), other.values()))
         for first, other in zip(firsts, others)),
        sum(each.prompt_tokens for each in embedded),
        sum(each.truncated_tokens for each in embedded),
    )


def recommend(
    model: str,
    history: Sequence[int],
    count: int,
    exclude: Sequence[int],
    candidates: Optional[Sequence[int]],
    options: Mapping[str, Any],
) -> Task[list[results.Recommendation]]:
    """Recommends items that follow a history, the best first; diverse items in selection order."""
    _check_count("count", count, 1)
    inputs = prompt_inputs([history])
    excluded = set(exclude)
    if candidates is None:
        if excluded:
            inputs.append(id_rows("exclude_ids", [sorted(excluded)], len(excluded), -1))
        answer = yield from _infer_head(
            model, inputs, ["top_ids", "top_scores"], options, max_tokens=1, num_top_logprobs=count
        )
        items, scores = (answer.outputs[name].tolist()[0][0] for name in ("top_ids", "top_scores"))
    else:
        items = [item for item in candidates if item not in excluded]
        inputs.append(id_rows("candidate_ids", [items], len(items), -1))
        answer = yield from _infer_head(
            model, inputs, ["candidate_scores", "candidate_order"], options, max_tokens=0
        )
        order = answer.outputs["candidate_order"].tolist()[0]
        scores = [answer.outputs["candidate_scores"].tolist()[0][place] for place in order]
        items = [items[place] for place in order]
    return [results.Recommendation(*pair) for pair in zip(items, scores)][:count]


def metadata(model: str, options: Mapping[str, Any]) -> Task[results.ModelInfo]:
    """Requests the inputs, outputs and properties of a model."""
    method = _protocol.MODEL_METADATA
    version = options.get("model_version", "")
    response = yield Call(method, method.request(name=model, version=version))

    def tensors(field: Iterable[Message]) -> list[results.TensorInfo]:
        return [results.TensorInfo(each.name, each.datatype, tuple(each.shape)) for each in field]

    return results.ModelInfo(
        response.name,
        list(response.versions),
        response.platform,
        tensors(response.inputs),
        tensors(response.outputs),
        dict(response.properties),
    )


def models(ready: bool) -> Task[list[results.IndexEntry]]:
    """Lists the served models and the daemon's repository, or only the ready ones."""
    method = _protocol.REPOSITORY_INDEX
    response = yield Call(method, method.request(ready=ready))
    return [
        results.IndexEntry(each.name, each.version, each.state, each.reason)
        for each in response.models
    ]


def load_model(name: str, path: str) -> Task[None]:
    """Loads an adapter MODEL:ADAPTER, whose folder must be at `path`."""
    method = _protocol.REPOSITORY_LOAD
    request = method.request(model_name=name)
    request.parameters["path"].string_param = path
    yield Call(method, request)


def unload_model(name: str) -> Task[None]:
    """Unloads a model or an adapter MODEL:ADAPTER."""
    method = _protocol.REPOSITORY_UNLOAD
    yield Call(method, method.request(model_name=name))


def server_ready() -> Task[bool]:
    """Requests whether the daemon is ready."""
    return bool((yield Call(_protocol.SERVER_READY, _protocol.SERVER_READY.request)))


def model_ready(model: str, options: Mapping[str, Any]) -> Task[bool]:
    """Requests whether a model is ready. Returns false for a model that is not served."""
    method = _protocol.MODEL_READY
    version = options.get("model_version", "")
    response = yield Call(method, method.request(name=model, version=version))
    return bool(response.ready)


def server_info() -> Task[results.ServerInfo]:
    """Requests the daemon's name, version and protocol extensions."""
    method = _protocol.SERVER_METADATA
    response = yield Call(method, method.request())
    return results.ServerInfo(response.name, response.version, list(response.extensions))
