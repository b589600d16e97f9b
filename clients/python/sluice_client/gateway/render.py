"""Renders chat templates in a process of its own, and limits their time and memory.

A model's template is Jinja code in its `tokenizer_config.json` or `chat_template.jinja`, as Hugging
Face stores it. The code is untrusted, so it runs in Jinja's sandbox, where it cannot modify objects
or call Python functions. The sandbox limits neither time nor memory. Therefore a child process
renders, and the parent ends it if it takes too long.

The child runs this file as a program. It reads lines of JSON and answers each with one line: first
the templates, then for each call the name of a template, the messages, and the special tokens that
they may not contain.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import os
import re
import resource
import sys
from typing import Any, Iterable, Mapping, Optional, Sequence

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MEMORY_BYTES = 256 << 20  # address space of the child
_MOST_DEPTH = 50  # of a tree of prefixes; re.compile calls itself for each level
# The options of a text that ends where the answer begins.
_ANSWERS: Mapping[str, Any] = {"add_generation_prompt": True}


class _Generation(Extension):
    """{% generation %} marks the assistant's part for training, and renders as its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class Template:
    """A compiled template."""

    def __init__(self, source: str, tokens: Mapping[str, str], max_bytes: int = 4 << 20) -> None:
        """`tokens` are the special tokens that the template may use, by name, such as bos_token.

        Raises ValueError if the template does not compile.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            optimized=False,  # The optimizer would compute constant expressions without a limit.
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ValueError(f"the chat template does not compile: {error}") from None
        self._tokens = tokens
        self._max_bytes = max_bytes

    def render(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any] = _ANSWERS
    ) -> str:
        """Returns the text. Raises ValueError if the template fails or the text is too long."""
        pieces, size = [], 0
        try:
            for piece in self._template.generate(
                messages=messages, **{**self._tokens, **options}
            ):
                pieces.append(piece)
                size += len(piece)
                if size > self._max_bytes:
                    raise ValueError(f"it writes more than {self._max_bytes} characters")
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError,
                AttributeError, RecursionError, MemoryError) as error:
            why = str(error) or type(error).__name__
            raise ValueError(f"the chat template failed: {why[:1000]}") from None
        return "".join(pieces)


def special_token_in(
    messages: Sequence[Mapping[str, str]], specials: Iterable[str]
) -> Optional[tuple[str, str]]:
    """Returns the first place with a special token, such as messages[0].content, and the token."""
    if not specials:
        return None
    find = _finder(tuple(specials)).search
    for i, message in enumerate(messages):
        for field, text in message.items():
            if found := find(text):
                return f"messages[{i}].{field}", found.group()
    return None


@functools.lru_cache(maxsize=16)
def _finder(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(_any_of(sorted(texts)))


def _any_of(texts: list[str], depth: int = 0) -> str:
    """Returns the expression of a tree of prefixes, so that the time for a character of a message
    hardly depends on the number of texts. They are sorted and not empty."""
    prefix = os.path.commonprefix(texts)
    if prefix in texts:
        return re.escape(prefix)
    if depth == _MOST_DEPTH:
        return "(?:" + "|".join(map(re.escape, texts)) + ")"
    groups = itertools.groupby((text[len(prefix):] for text in texts), lambda rest: rest[0])
    branches = (_any_of(list(rests), depth + 1) for _, rests in groups)
    return f"{re.escape(prefix)}(?:{'|'.join(branches)})"


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """The filter `tojson` of transformers, whose options differ from Jinja's."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def _answer(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    try:
        templates = {
            name: Template(each["source"], each["tokens"], each["max_bytes"])
            for name, each in json.loads(sys.stdin.readline()).items()
        }
        _answer({})
    except ValueError as error:
        _answer({"error": str(error)})
        return
    for line in sys.stdin:
        name, messages, specials = json.loads(line)
        if found := special_token_in(messages, specials):
            _answer({"special": found})
            continue
        try:
            _answer({"text": templates[name].render(messages)})
        except ValueError as error:
            _answer({"error": str(error)})


if __name__ == "__main__":
    main()
