"""OpenAI's /v1/completions and /v1/chat/completions, whole or streamed as events."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, AsyncGenerator, Callable, Mapping, Optional, Sequence, Union

from ..options import Prompt
from ..results import Generation
from .hostile import (
    Fields,
    Refused,
    check_number,
    check_text,
    cost_of_prompts,
    parse_object,
)
from .openai import prompt_options, prompts_of
from .serving import Answer, Events, Gateway, HttpCall, Whole

# The answers of one call that the daemon computes at the same time.
_AT_ONCE = 64
_MOST_STOPS = 16
_MOST_TOP = 20
_SEEDS = 2**64
# Bytes of a generated token, and of each of its candidates, until the answer has been encoded.
_COST_OF_TOKEN = 800


@dataclass(frozen=True)
class _Job:
    """The parameters of a completion or chat completion."""

    model: str
    prompts: list[Prompt]
    choices: int  # for each prompt
    max_tokens: int
    options: Mapping[str, Any]
    stream: bool
    include_usage: bool  # in the last event of a stream
    hold: Callable[[int], None]  # see HttpCall

    def starts(self) -> list[tuple[Prompt, Mapping[str, Any]]]:
        """Returns the prompt and options of each answer."""
        seed = self.options.get("seed")
        each: list[tuple[Prompt, Mapping[str, Any]]] = []
        for prompt in self.prompts:
            for choice in range(self.choices):
                own = {} if seed is None else {"seed": (seed + choice) % _SEEDS}
                each.append((prompt, {**self.options, **own}))
        return each


def _job(
    gateway: Gateway,
    call: HttpCall,
    fields: Fields,
    model_name: str,
    prompts: list[Prompt],
    max_tokens: int,
    num_top: Optional[int],
) -> _Job:
    """Reads the fields common to both APIs, and refuses the remaining ones."""
    choices = fields.integer("n", 1, 1, gateway.limits.max_choices)
    if choices * len(prompts) > gateway.limits.max_answers:
        raise Refused(400, f"n and the prompts request {choices * len(prompts)} answers; at most"
                      f" {gateway.limits.max_answers} are allowed", "n")
    call.hold(cost_of_prompts(prompts, choices))
    stop = fields.take("stop", None)
    if stop is not None:
        texts = [stop] if isinstance(stop, str) else stop
        if not isinstance(texts, list) or len(texts) > _MOST_STOPS:
            raise fields.refuse("stop", f"is not a text or a list of at most {_MOST_STOPS} texts")
        stop = [check_text("stop", each, 256) for each in texts]
    seed = fields.integer("seed", None, -(2**63), _SEEDS - 1)
    options = {
        "temperature": fields.number("temperature", 1.0),
        "top_p": fields.number("top_p", None),
        "presence_penalty": fields.number("presence_penalty", None),
        "frequency_penalty": fields.number("frequency_penalty", None),
        "seed": None if seed is None else seed % _SEEDS,
        "stop": stop or None,
        "logit_bias": _logit_bias(fields),
        "num_top_logprobs": num_top,
        "min_tokens": fields.integer("min_tokens", None),
        "top_k": fields.integer("top_k", None),
        "min_p": fields.number("min_p", None),
        "typical_p": fields.number("typical_p", None),
        "repetition_penalty": fields.number("repetition_penalty", None),
        "allowed_token_ids": fields.token_ids("allowed_token_ids", None),
        "stop_token_ids": fields.token_ids("stop_token_ids", None),
        "ignore_eos": fields.flag("ignore_eos", None),
        **prompt_options(fields),
    }
    stream = fields.flag("stream", False)
    include_usage = False
    if (settings := fields.object("stream_options", None)) is not None:
        include_usage = settings.flag("include_usage", False)
        settings.ignore("include_obfuscation")
        settings.end()
    fields.ignore("user", "metadata", "store", "service_tier", "safety_identifier",
                  "prompt_cache_key", "prompt_cache_retention")
    fields.end()
    given = {key: value for key, value in options.items() if value is not None}
    return _Job(model_name, prompts, choices, max_tokens, {**given, **call.options}, stream,
                include_usage, call.hold)


def _logit_bias(fields: Fields) -> Optional[dict[int, float]]:
    value = fields.take("logit_bias", None)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise fields.refuse("logit_bias", "is not an object")
    made = {}
    for token, bias in value.items():
        if not (token.isascii() and token.isdecimal()) or len(token) > 10:
            raise fields.refuse("logit_bias", "has a key that is not a token id; expected an"
                                " integer of at least 0")
        made[int(token)] = check_number("logit_bias", bias)
    return made or None


def _named(token_id: int) -> str:
    """Returns the name of a token. The gateway has no tokenizer, so it uses the id."""
    return f"token_id:{token_id}"


async def completions(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    prompts = prompts_of(fields, "prompt")
    max_tokens = fields.integer("max_tokens", 16)
    num_top = fields.integer("logprobs", None, 0, _MOST_TOP)
    fields.accept("best_of", 1)
    fields.accept("echo", False)
    fields.accept("suffix", "")
    job = _job(gateway, call, fields, fields.text("model", most=256), prompts, max_tokens, num_top)
    await gateway.models.check_token_ids(job.model, prompts, "prompt", call.options)

    def choice(index: int, part: Generation) -> Mapping[str, Any]:
        return {
            "index": index,
            "text": part.text,
            "logprobs": None if num_top is None else _completion_logprobs(part),
            "finish_reason": part.finish_reason or None,
        }

    head = _head(call, "cmpl", "text_completion", job.model)
    if job.stream:
        return _events(gateway, job, head, choice)
    parts = await _all(gateway, job)
    choices = [choice(i, part) for i, part in enumerate(parts)]
    return Whole({**head, "choices": choices, "usage": _usage(job, parts)})


def _completion_logprobs(part: Generation) -> Mapping[str, Any]:
    return {
        "tokens": [_named(each) for each in part.token_ids],
        "token_logprobs": part.logprobs,
        "top_logprobs": [
            {_named(each.token_id): each.logprob for each in top} for top in part.top
        ] or None,
        "text_offset": None,
    }


async def chat_completions(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    most = gateway.limits.max_messages
    messages = [_message(each) for each in fields.objects("messages", most=most)]
    max_tokens = fields.integer(
        "max_completion_tokens", fields.integer("max_tokens", gateway.default_max_tokens)
    )
    logprobs = fields.flag("logprobs", False)
    top = fields.integer("top_logprobs", 0, 0, _MOST_TOP)
    name = fields.text("model", most=256)
    _accept_without_effect(fields)
    template = gateway.templates.get(name)
    if template is None:
        raise Refused(
            404, f"the gateway has no chat template for the model {name[:100]!r}; start it with"
            " --chat MODEL=PATH, where PATH is the model's own folder or a Jinja file", "model"
        )
    if not messages:
        raise fields.refuse("messages", "is empty")
    prompt = await gateway.renderer.prompt(call.caller, name, messages)
    job = _job(gateway, call, fields, name, [prompt], max_tokens, top if logprobs else None)

    def contents(part: Generation) -> Optional[Mapping[str, Any]]:
        return {"content": _chat_logprobs(part), "refusal": None} if logprobs else None

    def choice(index: int, part: Generation) -> Mapping[str, Any]:
        return {
            "index": index,
            "delta": {"content": part.text},
            "logprobs": contents(part),
            "finish_reason": part.finish_reason or None,
        }

    if job.stream:
        head = _head(call, "chatcmpl", "chat.completion.chunk", job.model)
        first = [
            {"index": i, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            for i in range(job.choices)
        ]
        return _events(gateway, job, head, choice, first)
    parts = await _all(gateway, job)
    return Whole(
        {
            **_head(call, "chatcmpl", "chat.completion", job.model),
            "choices": [
                {
                    "index": i,
                    "message": {"role": "assistant", "content": part.text, "refusal": None},
                    "logprobs": contents(part),
                    "finish_reason": part.finish_reason,
                }
                for i, part in enumerate(parts)
            ],
            "usage": _usage(job, parts),
        }
    )


def _accept_without_effect(fields: Fields) -> None:
    """Reads fields of tools and formats whose values change nothing, and refuses other values."""
    fields.ignore("verbosity", "parallel_tool_calls")
    fields.accept("tools", [])
    fields.accept("functions", [])
    fields.accept("tool_choice", "none", "auto")
    fields.accept("function_call", "none", "auto")
    fields.accept("response_format", {"type": "text"})
    fields.accept("reasoning_effort", "none")
    fields.accept("modalities", ["text"])


_ROLES = ("system", "developer", "user", "assistant")


def _message(fields: Fields) -> Mapping[str, str]:
    """Returns a message. Its content is a text, or a list of text parts.

    Templates may show the name of an author and the reasoning before an answer. An answer that the
    caller received may come back with fields that are empty.
    """
    role = fields.word("role", _ROLES)
    shown = {name: fields.text(name) for name in ("name", "reasoning_content", "reasoning")
             if fields.has(name)}
    fields.ignore("id", "status")
    for name in ("tool_calls", "annotations"):
        fields.accept(name, [])
    fields.accept("refusal", "")
    content = fields.take("content", *[""] * (role == "assistant"))
    where = fields.path("content")
    if isinstance(content, list):
        texts = []
        for i, part in enumerate(content):
            piece = Fields(part, f"{where}[{i}]")
            piece.word("type", ("text",))
            texts.append(piece.text("text"))
            piece.end()
        content = "".join(texts)
    fields.end()
    return {"role": role, "content": check_text(where, content), **shown}


def _chat_logprobs(part: Generation) -> Sequence[Mapping[str, Any]]:
    top = part.top or [[] for _ in part.token_ids]
    return [
        {
            "token": _named(token),
            "logprob": logprob,
            "bytes": None,
            "top_logprobs": [
                {"token": _named(each.token_id), "logprob": each.logprob, "bytes": None}
                for each in candidates
            ],
        }
        for token, logprob, candidates in zip(part.token_ids, part.logprobs, top)
    ]


def _head(call: HttpCall, prefix: str, kind: str, model_name: str) -> Mapping[str, Any]:
    return {
        "id": f"{prefix}-{call.options['request_id'] or uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model_name,
    }


def _usage(job: _Job, parts: Sequence[Generation]) -> Mapping[str, Any]:
    """Counts tokens. The prompt of several answers counts once."""
    prompts = sum(part.prompt_tokens for part in parts) // job.choices
    answers = sum(len(part.token_ids) for part in parts)
    # Each part of a stream has the number of tokens that were cut from its prompt.
    cut = sum(part.truncated_tokens for part in parts if part.prompt_tokens) // job.choices
    usage: dict[str, Any] = {
        "prompt_tokens": prompts,
        "completion_tokens": answers,
        "total_tokens": prompts + answers,
        # Of several answers to a prompt, the later ones find the prompt of the first.
        "prompt_tokens_details": {
            "cached_tokens": sum(part.cached_tokens for part in parts) // job.choices
        },
    }
    return {**usage, "truncated_tokens": cut} if cut else usage


async def _all(gateway: Gateway, job: _Job) -> list[Generation]:
    """Generates all answers concurrently. If one fails, the others are cancelled."""

    async def one(prompt: Prompt, options: Mapping[str, Any]) -> Generation:
        client = gateway.client
        part = await client.generate(job.model, prompt, max_tokens=job.max_tokens, **options)
        job.hold(len(part.token_ids) * _COST_OF_TOKEN * (1 + len(part.top[0]) if part.top else 1))
        return part

    calls = [asyncio.ensure_future(one(*start)) for start in job.starts()]
    try:
        return list(await asyncio.gather(*calls))
    finally:
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)


async def _events(
    gateway: Gateway,
    job: _Job,
    head: Mapping[str, Any],
    choice: Callable[[int, Generation], Mapping[str, Any]],
    first: Sequence[Mapping[str, Any]] = (),
) -> Events:
    """Yields the events of all answers. `first` is sent after the daemon's first answer."""
    counted = []
    async with aclosing(_merged(gateway, job)) as parts:
        async for index, part in parts:
            for each in first:
                yield {**head, "choices": [each]}
            first = ()
            yield {**head, "choices": [choice(index, part)]}
            counted.append(replace(part, text="", logprobs=[], top=[]))
    if job.include_usage:
        yield {**head, "choices": [], "usage": _usage(job, counted)}
    yield "[DONE]"


async def _merged(gateway: Gateway, job: _Job) -> AsyncGenerator[tuple[int, Generation], None]:
    """Yields the parts of all answers as they arrive, each with the index of its answer."""
    # A queue of one: if the caller stops reading, all streams stop, and then the daemon does too.
    parts: asyncio.Queue[Union[tuple[int, Generation], Exception, None]] = asyncio.Queue(1)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def read(index: int, prompt: Prompt, options: Mapping[str, Any]) -> None:
        try:
            stream = gateway.client.stream(
                job.model, prompt, max_tokens=job.max_tokens, **options
            )
            async with slots, aclosing(stream):
                async for part in stream:
                    await parts.put((index, part))
            await parts.put(None)
        except Exception as failed:
            await parts.put(failed)

    readers = [
        asyncio.ensure_future(read(index, prompt, options))
        for index, (prompt, options) in enumerate(job.starts())
    ]
    try:
        unfinished = len(readers)
        while unfinished:
            part = await parts.get()
            if isinstance(part, Exception):
                raise part
            if part is None:
                unfinished -= 1
            else:
                yield part
    finally:
        for each in readers:
            each.cancel()
        await asyncio.wait(readers)
