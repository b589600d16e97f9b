"""Builds the messages of inference calls and parses their responses."""

from __future__ import annotations

import json
import numbers
import operator
from typing import Any, Iterable, Mapping, Sequence, Union

from . import _protocol
from ._protocol import Message
from .errors import NotServed, error_of
from .options import Prompt, Prompts, parameters_of
from .results import Answer, Candidate, Generation
from .tensors import Tensor, check_unicode

MAX_INT64 = 2**63 - 1


def infer_request(
    model: str,
    inputs: Union[Tensor, Iterable[Tensor]],
    outputs: Union[str, Iterable[str]],
    options: Mapping[str, Any],
    parameters: Mapping[str, Any],
) -> Message:
    """Returns the ModelInfer request with these options and parameters."""
    for what, value in (("model", model), ("model_version", options.get("model_version", ""))):
        if not isinstance(value, str):
            raise TypeError(f"{what} is {repr(value)[:100]}; expected a text")
    request = _protocol.MODEL_INFER.request(
        model_name=model,
        model_version=options.get("model_version", ""),
        id=options.get("request_id", ""),
    )
    for tensor in _tensors(inputs):
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(tensor.raw)
    for name in [outputs] if isinstance(outputs, str) else outputs:
        request.outputs.add(name=name)
    for name, value in {**parameters_of(options), **parameters}.items():
        _set_parameter(request.parameters[name], name, value)
    return request


def _tensors(inputs: Any) -> list[Tensor]:
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for each in tensors:
        if not isinstance(each, Tensor):
            raise TypeError(
                f"inputs must be tensors, not {type(inputs).__name__} of {type(each).__name__};"
                ' pass for example [Tensor.of("text_input", "BYTES", (1, 1), ["a text"])]'
            )
    return tensors


def _set_parameter(parameter: Message, name: str, value: Any) -> None:
    """Sets a parameter of a request. Lists and maps are sent as JSON (see docs/api.md)."""
    try:
        plain = _plain(value)
        if not isinstance(plain, (bool, int, float, str)):
            plain = json.dumps(plain, default=_plain)
    except TypeError as error:
        raise TypeError(f"parameter {name} is {repr(value)[:100]}; expected a boolean, a number, a"
                        f" text, or a list or map of these: {error}") from None
    if isinstance(plain, bool):
        parameter.bool_param = plain
    elif isinstance(plain, int):
        if not -(2**63) <= plain < 2**64:
            raise ValueError(f"parameter {name}: {plain} does not fit in 64 bits")
        setattr(parameter, "int64_param" if plain <= MAX_INT64 else "uint64_param", plain)
    elif isinstance(plain, float):
        parameter.double_param = plain
    else:
        parameter.string_param = plain


def _plain(value: Any) -> Any:
    """Returns a value, such as an array or a number of numpy, as a type that JSON has."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent")


def answer_of(response: Message) -> Answer:
    """Returns the answer in a ModelInferResponse."""
    return Answer(
        response.model_name,
        response.model_version,
        response.id,
        {
            output.name: Tensor(output.name, output.datatype, tuple(output.shape), raw)
            for output, raw in zip(response.outputs, response.raw_output_contents)
        },
        {
            name: getattr(value, value.WhichOneof("parameter_choice"))
            for name, value in response.parameters.items()
        },
    )


def is_text(value: Any) -> bool:
    return isinstance(value, (str, bytes))


def prompt_list(prompts: Prompts) -> list[Prompt]:
    """Returns a list of prompts. One text, or one list of token ids, is one prompt."""
    if isinstance(prompts, (str, bytes)):
        return [prompts]
    if hasattr(prompts, "columns") or hasattr(prompts, "__dataframe__"):
        raise TypeError(f"the inputs are a table ({type(prompts).__name__}), whose elements are"
                        " the names of its columns; pass one column, such as table['text']")
    if not _is_list(prompts):
        raise TypeError(f"prompts must be a text, a list of token ids, or a list of either, not "
                        f"{repr(prompts)[:100]}")
    listed: list[Any] = list(prompts)
    if not listed:
        raise ValueError("the list of inputs is empty; pass at least one")
    if isinstance(listed[0], numbers.Integral):
        return [listed]
    for i, each in enumerate(listed):
        _check_prompt(i, each)
    return listed


def _is_list(value: Any) -> bool:
    """Returns whether a value has elements in an order. The elements of a set have none, and those
    of a mapping are only its keys."""
    return isinstance(value, Iterable) and not isinstance(value, (Mapping, set, frozenset))


def _check_prompt(index: int, prompt: Any) -> None:
    """Raises an error that names the index of a prompt that is not valid."""
    if isinstance(prompt, str):
        check_unicode(f"input [{index}]", prompt)
    elif not isinstance(prompt, bytes) and not _is_list(prompt):
        raise TypeError(f"input [{index}] is {repr(prompt)[:100]}; expected a text or a list of"
                        " token ids")


def check_pairs(pairs: Sequence[Any]) -> None:
    """Raises an error that names the index of a pair that is not valid."""
    for i, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(is_text, pair)):
            raise TypeError(f"input [{i}] is {repr(pair)[:100]}; expected a pair of texts, as the"
                            " other inputs are")
        for text in pair:
            if isinstance(text, str):
                check_unicode(f"input [{i}]", text)


def check_kinds(prompts: Sequence[Prompt]) -> None:
    """Raises TypeError unless prompts are either all texts or all token ids."""
    if len({is_text(prompt) for prompt in prompts}) > 1:
        raise TypeError("the prompts mix texts and token ids; send them in two calls")


def prompt_inputs(prompts: Sequence[Prompt]) -> list[Tensor]:
    """Returns the inputs for prompts, one row each. Prompts are either all texts or all ids."""
    check_kinds(prompts)
    if is_text(prompts[0]):
        return [Tensor.of("text_input", "BYTES", (len(prompts), 1), prompts)]
    rows = [_token_ids(prompt) for prompt in prompts]
    longest = max(map(len, rows))
    return [
        id_rows("input_ids", rows, longest, 0),
        Tensor.of("input_lengths", "INT32", (len(rows), 1), map(len, rows)),
    ]


def _token_ids(prompt: Any) -> list[int]:
    ids: list[Any] = list(prompt) if isinstance(prompt, Iterable) else [None]
    try:
        if bool not in map(type, ids):
            return list(map(operator.index, ids))
    except TypeError:
        pass
    raise TypeError(f"a prompt must be a text or a list of token ids, not {repr(prompt)[:100]}")


def id_rows(
    name: str, rows: Sequence[Sequence[Any]], longest: int, padding: int
) -> Tensor:
    """Returns a tensor [rows, longest]; each row ends with `padding`."""
    fill = Tensor.of(name, "INT32", (1,), [padding]).raw
    raw = b"".join(
        Tensor.of(name, "INT32", (len(row),), row).raw + fill * (longest - len(row)) for row in rows
    )
    return Tensor(name, "INT32", (len(rows), longest), raw)


def pair_inputs(firsts: Sequence[Any], seconds: Sequence[Any]) -> list[Tensor]:
    """Returns the inputs for pairs of texts. A single first text is paired with every second."""
    if not all(map(is_text, (*firsts, *seconds))):
        raise TypeError("both parts of a pair must be texts")
    return [
        Tensor.of("text_input", "BYTES", (len(firsts), 1), firsts),
        Tensor.of("text_pair_input", "BYTES", (len(seconds), 1), seconds),
    ]


def generated_outputs(token_bytes: bool, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the outputs of a generated answer; none stands for the daemon's default outputs."""
    if not token_bytes:
        return ()
    top = ("top_ids", "top_logprobs", "top_bytes") if options.get("num_top_logprobs") else ()
    return ("output_ids", "logprobs", "finish_reason", "text_output", "output_bytes", *top)


def generate_request(
    model: str, prompt: Prompt, max_tokens: int, token_bytes: bool, options: Mapping[str, Any]
) -> Message:
    """Returns the request for one generated answer, streamed or not."""
    return infer_request(
        model, prompt_inputs([prompt]), generated_outputs(token_bytes, options), options,
        {"max_tokens": max_tokens},
    )


def part_of(response: Message) -> Answer:
    """Returns the answer in a stream's response, or raises the response's error."""
    answer = answer_of(response.infer_response)
    if response.error_message:
        raise error_of(
            str(answer.parameters.get("error_code", "UNKNOWN")),
            response.error_message,
            reason=str(answer.parameters.get("error_reason", "")),
            retry_after_ms=str(answer.parameters.get("retry_pushback_ms", "")),
        )
    return answer


def generation_of(answer: Answer) -> Generation:
    """Returns the generated tokens and text of a one-row answer."""
    outputs = answer.outputs
    if "output_ids" not in outputs:
        raise NotServed(
            f"the model {answer.model_name} does not generate; it returns {', '.join(outputs)}",
            "UNIMPLEMENTED",
        )
    text = outputs["text_output"].values()[0] if "text_output" in outputs else b""
    seed, cut = answer.parameters.get("seed"), answer.parameters.get("truncated_tokens", 0)
    return Generation(
        text.decode(errors="replace"),  # type: ignore[union-attr]
        outputs["output_ids"].values(),  # type: ignore[arg-type]
        outputs["logprobs"].values(),  # type: ignore[arg-type]
        outputs["finish_reason"].values()[0].decode(),  # type: ignore[union-attr]
        _top_of(outputs),
        None if seed is None else int(seed),
        int(cut),
        int(answer.parameters.get("prompt_tokens", 0)),
        int(answer.parameters.get("cached_tokens", 0)),
        int(answer.parameters.get("drafted_tokens", 0)),
        int(answer.parameters.get("accepted_tokens", 0)),
        outputs["output_bytes"].tolist()[0] if "output_bytes" in outputs else [],
        outputs["top_bytes"].tolist()[0] if "top_bytes" in outputs else [],
    )


def _top_of(outputs: Mapping[str, Tensor]) -> list[list[Candidate]]:
    if "top_ids" not in outputs:
        return []
    ids, logprobs = outputs["top_ids"].tolist()[0], outputs["top_logprobs"].tolist()[0]
    return [[Candidate(*pair) for pair in zip(*both)] for both in zip(ids, logprobs)]
