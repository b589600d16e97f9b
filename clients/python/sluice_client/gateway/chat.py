"""Turns the messages of a chat into a prompt by the model's template; see `render`."""

from __future__ import annotations

import asyncio
import json
import pathlib
import socket
import subprocess
import sys
from typing import Any, Iterable, Mapping, Optional, Sequence

from . import render
from .fairness import Caller, Places
from .hostile import Refused, start_with

_SPECIALS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
             "mask_token")
# The files of a tokenizer. Any of them may name special tokens.
_FILES = ("special_tokens_map.json", "tokenizer_config.json", "tokenizer.json")

_START_TIMEOUT_S = 30.0


class ChatTemplate:
    """A model's template, and the special tokens of its tokenizer."""

    def __init__(
        self, source: str, tokenizer: Mapping[str, Mapping[str, Any]] = {}, whole: bool = False
    ) -> None:
        """`tokenizer` has the contents of the tokenizer's files by name, `whole` if they name all
        special tokens.

        Raises ValueError if the template does not compile.
        """
        self.source = source
        self.tokens: dict[str, str] = {}
        self._specials: set[str] = set()
        self._whole = whole
        for name in _FILES[:2]:
            config = tokenizer.get(name, {})
            for token in _SPECIALS:
                if text := _content(config.get(token)):
                    self.tokens[token] = text
                    self._specials.add(text)
            more = config.get("additional_special_tokens") or []
            extra = config.get("extra_special_tokens") or []
            for each in (*_values(more), *_values(extra)):
                self._specials.add(_content(each))
            decoder = config.get("added_tokens_decoder")
            self._add_special(decoder.values() if isinstance(decoder, dict) else ())
        self._add_special(_values(tokenizer.get("tokenizer.json", {}).get("added_tokens") or []))
        self._specials.discard("")
        render.Template(source, self.tokens)

    def _add_special(self, tokens: Any) -> None:
        self._specials |= {
            _content(each) for each in tokens if isinstance(each, dict) and each.get("special")
        }

    @staticmethod
    def load(path: pathlib.Path, tokenizer: Optional[pathlib.Path] = None) -> ChatTemplate:
        """Reads a template from a model's folder, a tokenizer_config.json, or a Jinja file.

        `tokenizer` is the folder with the tokenizer's files, if it is not the template's folder.
        Raises ValueError if the path has no template, or if the model's tokenizer would not find
        the template's special tokens.
        """
        folder = tokenizer or (path if path.is_dir() else path.parent)
        if (folder / "tokenizer.model").is_file() and not (folder / "tokenizer.json").is_file():
            raise ValueError(f"{folder} has a tokenizer.model without a tokenizer.json, so the"
                             " special tokens of a chat would be read as plain text; convert it:"
                             " transformers.AutoTokenizer.from_pretrained(FOLDER)"
                             ".save_pretrained(FOLDER)")
        files = {name: _read(folder / name) for name in _FILES if (folder / name).is_file()}
        is_model = any((folder / name).is_file()
                       for name in (*_FILES, "tokenizer.model", "config.json"))
        file = path / "chat_template.jinja" if path.is_dir() else path
        if not path.exists():
            raise ValueError("there is no such file or folder")
        if file.suffix != ".json" and file.exists():
            source: Any = file.read_text(encoding="utf-8")
        else:
            config = _read(path) if path.is_file() else _read(path / "tokenizer_config.json")
            source = config.get("chat_template")
            if isinstance(source, list):  # Several named templates.
                source = {each["name"]: each["template"] for each in source}.get("default")
        if not isinstance(source, str):
            raise ValueError(f"{path} has no chat template (chat_template.jinja or chat_template)")
        return ChatTemplate(source, files, is_model)

    def specials(self, served: Optional[Iterable[str]] = ()) -> list[str]:
        """Returns the tokens that a message may not contain. The tokenizer would read them as
        special tokens, so a message could end its own turn and start another.

        `served` are the tokens that the daemon lists in addition to those of the files; None if its
        list is too long.
        """
        if served is None and not self._whole:
            raise Refused(500, "the special tokens of the model are not known, so a message cannot"
                          " be checked; start the gateway with --tokenizer MODEL=FOLDER", "model")
        return sorted(self._specials.union(served or ()))

    def messages(self, messages: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
        """Returns the messages with roles that the template knows.

        OpenAI's clients write `developer` for `system`. Templates leave out unknown roles.
        """
        if "developer" in self.source:
            return messages
        return [{**each, "role": "system"} if each["role"] == "developer" else each
                for each in messages]


class Renderer:
    """Renders templates in a child process, one at a time, each within a limit of time."""

    def __init__(
        self, templates: Mapping[str, ChatTemplate], max_bytes: int, timeout_s: float
    ) -> None:
        self._templates = templates
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._reader: Optional[asyncio.StreamReader] = None
        self._writer: Optional[asyncio.StreamWriter] = None
        self._turns = Places(1, abort_hold_s=0)

    async def prompt(
        self, caller: Caller, name: str, messages: Sequence[Mapping[str, str]],
        specials: Sequence[str],
    ) -> str:
        """Returns the prompt for the assistant's next message, which has none of `specials`."""
        if not self._turns.take(caller):
            await self._turns.wait(caller)
        try:
            known = self._templates[name].messages(messages)
            rendering = asyncio.ensure_future(self._render([name, known, specials]))
            try:
                answer = await asyncio.shield(rendering)
            except asyncio.CancelledError:
                # The child's answer must be read before the next call.
                await asyncio.wait({rendering})
                rendering.exception()
                raise
        finally:
            self._turns.give_back(caller)
        if "special" in answer:
            raise _special_token(*answer["special"])
        if "error" in answer:
            raise Refused(400, answer["error"], "messages")
        text: str = answer["text"]
        return text

    async def _render(self, call: Sequence[Any]) -> Any:
        why = "it ended its process"
        try:
            if self._child is None:
                await asyncio.wait_for(self._start(), _START_TIMEOUT_S)
            return await asyncio.wait_for(self._exchange(call), self._timeout_s)
        except asyncio.TimeoutError:
            why = f"it did not end within {self._timeout_s:g} s (--template-timeout)"
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        self.close()
        raise Refused(400, f"the chat template failed: {why}", "messages", "template")

    async def _start(self) -> None:
        own, childs = socket.socketpair()
        with childs:
            # Popen uses vfork; a plain fork, as in uvloop, would run gRPC's fork handlers.
            self._child = subprocess.Popen(
                [sys.executable, "-I", render.__file__],
                stdin=childs.fileno(), stdout=childs.fileno(),
            )
        self._reader, self._writer = await asyncio.open_connection(
            sock=own, limit=8 * self._max_bytes
        )
        await self._exchange({
            name: {"source": each.source, "tokens": each.tokens, "max_bytes": self._max_bytes}
            for name, each in self._templates.items()
        })

    async def _exchange(self, value: Any) -> Any:
        assert self._reader and self._writer
        self._writer.write(json.dumps(value).encode() + b"\n")
        await self._writer.drain()
        return json.loads(await self._reader.readuntil(b"\n"))

    def close(self) -> None:
        """Ends the child; the next call starts another one."""
        if self._writer is not None:
            self._writer.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._reader = self._writer = self._child = None


def _special_token(where: str, token: str) -> Refused:
    return Refused(400, f"{where} contains the special token {token!r}, which could end the"
                   f" message; remove it, or {start_with('--allow-special-tokens')}", where,
                   reason="special_token")


def _read(file: pathlib.Path) -> Any:
    if not file.is_file():
        return {}
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{file} is not a JSON object")
    return content


def _content(token: Any) -> str:
    """Returns a token's text, written as "text" or as an object with a `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _values(tokens: Any) -> Sequence[Any]:
    if isinstance(tokens, dict):
        return list(tokens.values())
    return tokens if isinstance(tokens, list) else []
