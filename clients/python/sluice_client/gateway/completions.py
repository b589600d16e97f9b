"""OpenAI's /v1/completions and /v1/chat/completions, whole or streamed as events."""

from __future__ import annotations

import asyncio
import codecs
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import (
    Any,
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

from ..errors import naming_items
from ..options import Prompt
from ..results import Generation
from .call import Answer, Events, HttpCall, Whole
from .hostile import (
    MAX_ROWS,
    Fields,
    Refused,
    check_number,
    check_text,
    cost_of_prompts,
    parse_object,
    size_of_prompt,
)
from .openai import prompt_options, prompts_of, truncation_of
from .serving import Gateway

# The answers of one call that the daemon computes at the same time, and the bytes of their prompts.
# One answer may have more. A prompt that the daemon refuses is sent only as often as this allows.
_AT_ONCE = 64
_BYTES_AT_ONCE = 1 << 20
_MOST_STOPS = 16
_MOST_TOP = 20
_MOST_PREDICTION = 65536  # bytes
_SEEDS = 2**64
_LEAST_TEMPERATURE = 0.001  # of the daemon, except for 0
# Bytes of an answer, of a generated token, and of each of its candidates, until the answer has been
# encoded.
_COST_OF_ANSWER = 3000
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
    token_bytes: bool  # the logprobs name tokens by their texts
    hold: Callable[[int], None]  # see HttpCall

    @property
    def answers(self) -> int:
        return self.choices * len(self.prompts)

    def finish_reason(self, part: Generation) -> Optional[str]:
        """Returns why the answer ended, or None if it goes on.

        The daemon gives no reason if no token was requested.
        """
        return part.finish_reason or (None if self.max_tokens else "length")

    def starts(self) -> Iterator[tuple[Prompt, Mapping[str, Any]]]:
        """Yields the prompt and options of each answer."""
        seed = self.options.get("seed")
        for prompt in self.prompts:
            for choice in range(self.choices):
                own = {} if seed is None else {"seed": (seed + choice) % _SEEDS}
                yield prompt, {**self.options, **own}


def _job(
    gateway: Gateway,
    call: HttpCall,
    fields: Fields,
    model_name: str,
    prompts: list[Prompt],
    max_tokens: int,
    num_top: Optional[int],
    token_bytes: bool,
    add_special_tokens: Optional[bool],
) -> _Job:
    """Reads the fields common to both APIs, and refuses the remaining ones. `num_top` is None if
    no logprobs are requested."""
    choices = fields.integer("n", 1, 1, gateway.limits.max_choices)
    answers = choices * len(prompts)
    if answers > MAX_ROWS:
        raise Refused(400, f"n and the prompts request {answers} answers; at most {MAX_ROWS} are"
                      " allowed", "n", reason="size")
    call.hold(cost_of_prompts(prompts, choices) + answers * _COST_OF_ANSWER)
    stop = fields.take("stop", None)
    if stop is not None:
        texts = [stop] if isinstance(stop, str) else stop
        if not isinstance(texts, list) or len(texts) > _MOST_STOPS:
            raise fields.refuse("stop", f"is not a text or a list of at most {_MOST_STOPS} texts")
        # OpenAI's API and vLLM take an empty text for none.
        stop = [check_text("stop", each, 256) for each in texts if each != ""]
    seed = fields.integer("seed", None, -(2**63), _SEEDS - 1)
    temperature, top_p = fields.number("temperature", 1.0), fields.number("top_p", None)
    if top_p == 0:  # OpenAI's API takes 0 for the most likely token.
        temperature, top_p = 0.0, None
    if 0 < temperature < _LEAST_TEMPERATURE:  # Clients write a tiny number for 0.
        temperature = 0.0
    options = {
        "add_special_tokens": add_special_tokens,
        "temperature": temperature,
        "top_p": top_p,
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
        "speculation": fields.flag("speculation", None),
        "prediction": _prediction(fields),
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
                include_usage, token_bytes, call.hold)


def _prediction(fields: Fields) -> Optional[str]:
    """Returns the predicted answer, cut to the length that the daemon takes."""
    settings = fields.object("prediction", None)
    if settings is None:
        return None
    settings.word("type", ("content",))
    text = _content(settings)
    settings.end()
    return text.encode()[:_MOST_PREDICTION].decode(errors="ignore") or None


def _content(fields: Fields, *absent: str) -> str:
    """Returns the field `content`: a text, or a list of text parts."""
    content = fields.take("content", *absent)
    where = fields.path("content")
    if isinstance(content, list):
        texts = []
        for i, part in enumerate(content):
            piece = Fields(part, f"{where}[{i}]")
            piece.word("type", ("text",))
            texts.append(piece.text("text"))
            piece.end()
        content = "".join(texts)
    return check_text(where, content)


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


class _Token(NamedTuple):
    """A token of an answer, or a candidate, as logprobs show it."""

    id: int
    logprob: float
    bytes: Optional[bytes]  # None if the model has no tokenizer

    @property
    def text(self) -> str:
        """The token's text. As in OpenAI's API, a part of a character is written by its bytes."""
        if self.bytes is None:
            return f"token_id:{self.id}"
        try:
            return self.bytes.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{each:02x}" for each in self.bytes)

    def shown(self) -> dict[str, Any]:
        """Returns the token as the chat API shows it."""
        return {"token": self.text, "logprob": self.logprob,
                "bytes": None if self.bytes is None else list(self.bytes)}


def _tokens(part: Generation) -> Iterator[tuple[_Token, list[_Token]]]:
    """Yields each token of an answer, and its candidates."""
    nothing: list[Any] = [None] * len(part.token_ids)
    own = part.token_bytes or nothing
    tops = part.top or nothing
    top_bytes = part.top_bytes or nothing
    for token, logprob, spelled, top, spellings in zip(
        part.token_ids, part.logprobs, own, tops, top_bytes
    ):
        candidates = [
            _Token(each.token_id, each.logprob, text)
            for each, text in zip(top or (), spellings or [None] * len(top or ()))
        ]
        yield _Token(token, logprob, spelled), candidates


async def completions(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    call.row_field = fields.row_field("prompt")
    prompts = prompts_of(fields, "prompt")
    max_tokens = fields.integer("max_tokens", 16)
    num_top = fields.integer("logprobs", None, 0, _MOST_TOP)
    fields.accept("best_of", 1)
    fields.accept("echo", False)
    fields.accept("suffix", "")
    name = fields.text("model", most=256)
    spells = num_top is not None and await gateway.models.spells(name, call.options)
    special = fields.flag("add_special_tokens", None)
    job = _job(gateway, call, fields, name, prompts, max_tokens, num_top, spells, special)
    await gateway.models.check_token_ids(job.model, prompts, "prompt", call.options)
    places = [_Place() for _ in range(job.answers)]

    def choice(index: int, part: Generation) -> Mapping[str, Any]:
        return {
            "index": index,
            "text": part.text,
            "logprobs": None if num_top is None else _completion_logprobs(part, places[index]),
            "finish_reason": job.finish_reason(part),
        }

    head = _head(call, "cmpl", "text_completion", job.model)
    if job.stream:
        return _events(gateway, job, head, choice, {"text": ""})
    choices, usage = await _all(gateway, job, choice)
    return Whole({**head, "choices": choices, "usage": usage.shown(job.choices)})


@dataclass
class _Place:
    """The place in the text of an answer where its next token begins."""

    offset: int = 0  # in characters
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace"))

    def move(self, token: _Token) -> None:
        text = token.text if token.bytes is None else self._decoder.decode(token.bytes)
        self.offset += len(text)


def _completion_logprobs(part: Generation, place: _Place) -> Mapping[str, Any]:
    """Returns the logprobs of a part of an answer that begins at `place`, and moves it to the end
    of the part."""
    texts, offsets, tops = [], [], []
    for token, candidates in _tokens(part):
        texts.append(token.text)
        offsets.append(place.offset)
        place.move(token)
        top: dict[str, float] = {}
        # Of two candidates with one text, the likelier one is first. The drawn token may be none.
        for each in (*candidates, token):
            top.setdefault(each.text, each.logprob)
        tops.append(top)
    return {
        "tokens": texts,
        "token_logprobs": part.logprobs,
        "top_logprobs": tops,
        "text_offset": offsets,
    }


async def chat_completions(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    _accept_without_effect(fields)  # before the messages, which may have answers of tools
    most = gateway.limits.max_messages
    messages = [_message(each) for each in fields.objects("messages", most=most)]
    limit = fields.integer("max_completion_tokens", fields.integer("max_tokens", None))
    logprobs = fields.flag("logprobs", False)
    top = fields.integer("top_logprobs", 0, 0, _MOST_TOP)
    if top and not logprobs:
        raise fields.refuse("top_logprobs", "needs logprobs; send logprobs: true")
    name = fields.text("model", most=256)
    template = gateway.templates.get(name)
    if template is None:
        raise await gateway.models.without_template(name, call.options)
    if not messages:
        raise fields.refuse("messages", "is empty")
    served = await gateway.models.special_tokens(name, call.options)
    refused = () if gateway.special_tokens_allowed else template.specials(served)
    prompt = await gateway.renderer.prompt(call.caller, name, messages, refused)
    # The template writes all special tokens, unless the tokenizer finds none in texts.
    special = fields.flag("add_special_tokens", None if served == [] else False)
    max_tokens = limit if limit is not None else await gateway.models.room(
        name, prompt, gateway.default_max_tokens,
        truncation_of(fields.copy()) in ("left", "right"),
        {**call.options, "add_special_tokens": special})
    spells = logprobs and await gateway.models.spells(name, call.options)
    job = _job(gateway, call, fields, name, [prompt], max_tokens, top if logprobs else None,
               spells, special)

    def contents(part: Generation) -> Optional[Mapping[str, Any]]:
        return {"content": _chat_logprobs(part), "refusal": None} if logprobs else None

    def delta(index: int, part: Generation) -> Mapping[str, Any]:
        return {
            "index": index,
            "delta": {"content": part.text},
            "logprobs": contents(part),
            "finish_reason": job.finish_reason(part),
        }

    def choice(index: int, part: Generation) -> Mapping[str, Any]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": part.text, "refusal": None},
            "logprobs": contents(part),
            "finish_reason": job.finish_reason(part),
        }

    if job.stream:
        head = _head(call, "chatcmpl", "chat.completion.chunk", job.model)
        first = [
            {"index": i, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            for i in range(job.choices)
        ]
        return _events(gateway, job, head, delta, {"delta": {"content": ""}}, first)
    choices, usage = await _all(gateway, job, choice)
    head = _head(call, "chatcmpl", "chat.completion", job.model)
    return Whole({**head, "choices": choices, "usage": usage.shown(job.choices)})


_NO_TOOLS = ("Models do not call functions here: describe the functions in a message, and parse the"
             " answer")
_NO_FORMATS = "Answers are plain text: ask for JSON in a message, and check the answer"


def _accept_without_effect(fields: Fields) -> None:
    """Reads fields of tools and formats whose values change nothing, and refuses other values."""
    fields.ignore("verbosity", "parallel_tool_calls")
    fields.accept("tools", [], instead=_NO_TOOLS)
    fields.accept("functions", [], instead=_NO_TOOLS)
    fields.accept("tool_choice", "none", "auto", instead=_NO_TOOLS)
    fields.accept("function_call", "none", "auto", instead=_NO_TOOLS)
    fields.accept("response_format", {"type": "text"}, instead=_NO_FORMATS)
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
    content = _content(fields, *[""] * (role == "assistant"))
    fields.end()
    return {"role": role, "content": content, **shown}


def _chat_logprobs(part: Generation) -> Sequence[Mapping[str, Any]]:
    return [
        {**token.shown(), "top_logprobs": [each.shown() for each in candidates]}
        for token, candidates in _tokens(part)
    ]


def _head(call: HttpCall, prefix: str, kind: str, model_name: str) -> Mapping[str, Any]:
    return {
        "id": f"{prefix}-{call.options['request_id']}",
        "object": kind,
        "created": int(time.time()),
        "model": model_name,
    }


@dataclass
class _Usage:
    """The numbers of tokens of answers, or of parts of answers."""

    prompt: int = 0
    generated: int = 0
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    cut: int = 0

    def add(self, part: Generation) -> None:
        self.prompt += part.prompt_tokens
        self.generated += len(part.token_ids)
        self.cached += part.cached_tokens
        self.drafted += part.drafted_tokens
        self.accepted += part.accepted_tokens
        # Each part of a stream has the number of tokens that were cut from its prompt.
        self.cut += part.truncated_tokens if part.prompt_tokens else 0

    def shown(self, choices: int) -> Mapping[str, Any]:
        """Returns the usage of a call. The prompt of several answers counts once."""
        prompt, cut = self.prompt // choices, self.cut // choices
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": self.generated,
            "total_tokens": prompt + self.generated,
            # Of several answers to a prompt, the later ones find the prompt of the first.
            "prompt_tokens_details": {"cached_tokens": self.cached // choices},
            "completion_tokens_details": {
                "accepted_prediction_tokens": self.accepted,
                "rejected_prediction_tokens": self.drafted - self.accepted,
            },
        }
        return {**usage, "truncated_tokens": cut} if cut else usage


@asynccontextmanager
async def _started(
    job: _Job, answer: Callable[[int, Prompt, Mapping[str, Any]], Awaitable[None]]
) -> AsyncIterator[Sequence[asyncio.Future[None]]]:
    """Runs `answer` for each answer, a limited number at a time, until the context ends.

    One call with many prompts then does not take all places of its caller at the daemon.
    """
    longest = max(map(size_of_prompt, job.prompts))
    at_once = min(_AT_ONCE, job.answers, max(1, _BYTES_AT_ONCE // max(1, longest)))
    starts = enumerate(job.starts())

    async def work() -> None:
        for index, (prompt, options) in starts:
            await answer(index, prompt, options)

    workers = [asyncio.ensure_future(work()) for _ in range(at_once)]
    try:
        yield workers
    finally:
        for each in workers:
            each.cancel()
        await asyncio.wait(workers)


async def _all(
    gateway: Gateway, job: _Job, choice: Callable[[int, Generation], Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], _Usage]:
    """Generates all answers concurrently, and returns the `choice` of each. If one fails, the
    others are cancelled."""
    choices: dict[int, Mapping[str, Any]] = {}
    usage = _Usage()
    # Answers often end in the same step. Other calls are served between their conversions.
    converting = asyncio.Lock()

    async def answer(index: int, prompt: Prompt, options: Mapping[str, Any]) -> None:
        with naming_items(lambda name, row: index // job.choices):
            part = await gateway.client.generate(
                job.model, prompt, max_tokens=job.max_tokens, token_bytes=job.token_bytes,
                **options)
        job.hold(len(part.token_ids) * _COST_OF_TOKEN * (1 + len(part.top[0]) if part.top else 1))
        async with converting:
            choices[index] = choice(index, part)
            await asyncio.sleep(0)
        usage.add(part)

    async with _started(job, answer) as workers:
        await asyncio.gather(*workers)
    return [choices[i] for i in range(job.answers)], usage


async def _events(
    gateway: Gateway,
    job: _Job,
    head: Mapping[str, Any],
    choice: Callable[[int, Generation], Mapping[str, Any]],
    nothing: Mapping[str, Any],
    first: Sequence[Mapping[str, Any]] = (),
) -> Events:
    """Yields the events of all answers. `first` is sent after the daemon's first answer.

    As in OpenAI's API, the reason why an answer ends is an event of its own, with `nothing` for its
    text: clients may stop reading there.
    """
    usage = _Usage()
    async with aclosing(_merged(gateway, job)) as parts:
        async for index, part in parts:
            for each in first:
                yield {**head, "choices": [each]}
            first = ()
            made = choice(index, part)
            reason = made["finish_reason"]
            # The end of a row may have text that was withheld because a stop might begin with it.
            if reason is None or part.token_ids or part.text:
                yield {**head, "choices": [{**made, "finish_reason": None}]}
            if reason is not None:
                yield {**head, "choices": [
                    {"index": index, **nothing, "logprobs": None, "finish_reason": reason}]}
            usage.add(part)
    if job.include_usage:
        yield {**head, "choices": [], "usage": usage.shown(job.choices)}
    yield "[DONE]"


async def _merged(gateway: Gateway, job: _Job) -> AsyncGenerator[tuple[int, Generation], None]:
    """Yields the parts of all answers as they arrive, each with the index of its answer."""
    # A queue of one: if the caller stops reading, all streams stop, and then the daemon does too.
    parts: asyncio.Queue[Union[tuple[int, Generation], Exception, None]] = asyncio.Queue(1)

    async def answer(index: int, prompt: Prompt, options: Mapping[str, Any]) -> None:
        try:
            stream = gateway.client.stream(
                job.model, prompt, max_tokens=job.max_tokens, token_bytes=job.token_bytes,
                **options
            )
            with naming_items(lambda name, row: index // job.choices):
                async with aclosing(stream):
                    async for part in stream:
                        await parts.put((index, part))
            await parts.put(None)
        except Exception as failed:
            await parts.put(failed)
            # The reader raises the error, which ends all answers. No further one may start.
            await asyncio.get_running_loop().create_future()

    async with _started(job, answer):
        unfinished = job.answers
        while unfinished:
            part = await parts.get()
            if isinstance(part, Exception):
                raise part
            if part is None:
                unfinished -= 1
            else:
                yield part
