"""Templates that turn the messages of a chat into a prompt.

A model's template is Jinja code in its `tokenizer_config.json` or `chat_template.jinja`, as Hugging
Face stores it. The code is untrusted, so it runs in Jinja's sandbox, where it cannot modify objects
or call Python functions.
"""

from __future__ import annotations

import datetime
import json
import pathlib
from typing import Any, Mapping, Sequence

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .hostile import Refused

_SPECIALS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
             "mask_token")


class ChatTemplate:
    """A model's template, and the special tokens that the template may use."""

    def __init__(self, source: str, tokenizer_config: Mapping[str, Any] = {}) -> None:
        """Raises ValueError if the template does not compile."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template does not compile: {error}") from None
        self._tokens = {
            name: _content(tokenizer_config[name])
            for name in _SPECIALS
            if tokenizer_config.get(name) is not None
        }
        added = tokenizer_config.get("added_tokens_decoder", {}).values()
        self._specials = {each for each in self._tokens.values() if each} | {
            each["content"] for each in added if each.get("special") and each.get("content")
        }
        # The daemon's tokenizer adds the BOS token itself unless add_bos_token is false.
        self._daemon_adds_bos = tokenizer_config.get("add_bos_token") is not False

    @staticmethod
    def load(path: pathlib.Path) -> ChatTemplate:
        """Reads a template from a model's folder, a tokenizer_config.json, or a Jinja file.

        Raises ValueError if the path has no template.
        """
        folder = path if path.is_dir() else path.parent
        settings = path if path.suffix == ".json" else folder / "tokenizer_config.json"
        config = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
        file = folder / "chat_template.jinja" if path.is_dir() else path
        if file.suffix != ".json" and file.exists():
            return ChatTemplate(file.read_text(encoding="utf-8"), config)
        source = config.get("chat_template")
        if isinstance(source, list):  # Several named templates.
            source = {each["name"]: each["template"] for each in source}.get("default")
        if not isinstance(source, str):
            raise ValueError(f"{path} has no chat template (chat_template.jinja or chat_template)")
        return ChatTemplate(source, config)

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Returns the prompt for the assistant's next message.

        Refuses a message that contains a special token of the model. The tokenizer would read it as
        a special token, so a message could end its own turn and start another.
        """
        for index, message in enumerate(messages):
            for token in self._specials:
                if token in message["content"]:
                    where = f"messages[{index}].content"
                    raise Refused(400, f"{where} contains the special token {token!r}", where)
        try:
            text = self._template.render(
                messages=messages, add_generation_prompt=True, **self._tokens
            )
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise Refused(400, f"the chat template failed: {error}", "messages") from None
        bos = self._tokens.get("bos_token", "")
        return text[len(bos) :] if bos and self._daemon_adds_bos and text.startswith(bos) else text


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, indent: Any = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)
