"""Checks requests against the metadata of the daemon's models."""

from __future__ import annotations

import json
import time
from typing import AbstractSet, Any, Iterable, Mapping, Optional, Sequence, cast

from ..aio import AsyncClient
from ..errors import NotFound
from ..options import Activation, Prompt
from ..results import ModelInfo
from .hostile import Fields, Refused, start_with

# A model that was replaced is seen after this time. Most calls then need no call for metadata.
_FRESH_S = 1.0
_MOST_ENTRIES = 256
_SPECIAL_TOKENS = 16  # of a prompt, at most, for which no text is necessary


def is_served(name: str, served: AbstractSet[str]) -> bool:
    """Returns whether a model, or the model of MODEL:ADAPTER, is among the served ones."""
    return name.partition(":")[0] in served


def doubts(
    served: AbstractSet[str], aliases: Mapping[str, str], chats: Iterable[str]
) -> list[str]:
    """Returns a line for each option that names a model in a way that is probably a mistake.

    `chats` are the models that have chat templates.
    """
    names = f"the daemon serves {', '.join(sorted(served))[:200] or 'no models'}"
    return [
        *(f"--alias {alias}={name}: there is no model {name!r}; {names}"
          for alias, name in aliases.items() if not is_served(name, served)),
        *(f"--alias {alias}={name}: the daemon serves a model {alias!r}, which callers cannot use"
          " under this name; choose another alias"
          for alias, name in aliases.items() if alias in served),
        *(f"--chat {name}: there is no model {name!r}; {names}"
          for name in chats if name not in aliases and not is_served(name, served)),
    ]


class Models:
    """Metadata of models, requested with each caller's credential."""

    _client: AsyncClient

    def __init__(self, token_ids_allowed: bool, default: str = "") -> None:
        """`default` is the model of requests that name none; empty: the only served model."""
        self._token_ids_allowed = token_ids_allowed
        self._default = default
        self._known: dict[tuple[str, ...], tuple[float, ModelInfo]] = {}

    def of(self, client: AsyncClient) -> Models:
        """Returns the same models, whose metadata `client` requests."""
        made = object.__new__(Models)
        made.__dict__.update(self.__dict__)
        made._client = client
        return made

    async def info(self, name: str, options: Mapping[str, Any]) -> ModelInfo:
        """Returns the metadata of a model, which may be a second old."""
        credentials = (value for key, value in options["metadata"] if key == "authorization")
        key = (name, *credentials)
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        info = await self._client.metadata(name, **options)
        if len(self._known) >= _MOST_ENTRIES:
            self._known.clear()
        self._known[key] = (time.monotonic() + _FRESH_S, info)
        return info

    async def named(self, fields: Fields, options: Mapping[str, Any]) -> str:
        """Reads the field `model` of a request, which may be absent."""
        return await self.name_of(fields.text("model", None, most=256), options)

    async def name_of(self, given: Optional[str], options: Mapping[str, Any]) -> str:
        """Returns the name that a request gives, or the default if it gives none."""
        if given or self._default:
            return given or self._default
        served = await self._client.models(ready=True, **options)
        names = sorted({each.name for each in served if ":" not in each.name})  # no adapters
        if len(names) == 1:
            return names[0]
        if not names:
            raise NotFound("the request names no model, and no model is served; load one",
                           "NOT_FOUND", "not_found")
        raise Refused(400, f"the request names no model, and {len(names)} are served"
                      f" ({', '.join(names)[:200]}); send the field model, or"
                      f" {start_with('--default-model NAME')}", "model")

    async def check_embeds(self, name: str, options: Mapping[str, Any]) -> None:
        """Refuses a classifier, whose states are not made to be compared."""
        info = await self.info(name, options)
        outputs = {each.name for each in info.outputs}
        if outputs & {"scores", "token_scores"}:
            kind = "reranker or classifier" if "scores" in outputs else "classifier of tokens"
            raise Refused(400, f"the model {name[:100]!r} is a {kind} and has no embeddings; use"
                          " /v1/rerank, /classify or /v2/models/MODEL/infer, or another model",
                          "model")

    async def room(
        self, name: str, prompt: Prompt, most: int, cuts: bool, options: Mapping[str, Any]
    ) -> int:
        """Returns how many tokens, up to `most`, can follow a prompt; 1 if it is too long.

        If the daemon `cuts` a prompt, room for an answer is half of the positions.
        """
        served = {key: value for key, value in options.items() if key != "add_special_tokens"}
        positions = int((await self.info(name, served)).properties.get("max_positions", 0))
        if not positions or not isinstance(prompt, str):
            return most
        # A token has at least one byte, except for a few special ones.
        if len(prompt.encode()) + most <= positions - _SPECIAL_TOKENS:
            return most
        # A text that is too long is cut, and then leaves no room.
        found = await self._client.tokenize(name, [prompt], truncate="right", **options)
        least = positions // 2 if cuts and found.truncated_tokens else 1
        return min(most, max(1, least, positions + 1 - len(found[0])))

    async def spells(self, name: str, options: Mapping[str, Any]) -> bool:
        """Returns whether the model states the bytes of generated tokens: it has a tokenizer."""
        info = await self.info(name, options)
        return any(each.name == "text_output" for each in info.outputs)

    async def without_template(self, name: str, options: Mapping[str, Any]) -> Refused:
        """Returns the refusal of a chat with a model that has no chat template.

        Raises NotFound if the model is not served.
        """
        info = await self.info(name, options)
        if all(each.name != "output_ids" for each in info.outputs):
            return Refused(400, f"the model {name[:100]!r} does not generate text, so it has no"
                           " chats; use another model, or a path for this model's outputs"
                           f" ({', '.join(each.name for each in info.outputs)[:200]})", "model")
        return Refused(400, f"the gateway has no chat template for the model {name[:100]!r};"
                       f" {start_with('--chat MODEL=PATH')}, where PATH is the model's own folder,"
                       " or a Jinja file with --tokenizer", "model")

    async def check_token_ids(
        self, name: str, prompts: Sequence[Prompt], field: str, options: Mapping[str, Any]
    ) -> None:
        """Refuses token ids for a model with a tokenizer, unless a flag allows them.

        Clients such as LangChain's send the ids of OpenAI's vocabulary, which mean other tokens.
        """
        if self._token_ids_allowed or all(isinstance(each, str) for each in prompts):
            return
        info = await self.info(name, options)
        if any(each.name == "text_input" for each in info.inputs):
            raise Refused(400, f"{field} has token ids, and the model {name[:100]!r} takes texts;"
                          " send texts (LangChain: check_embedding_ctx_length=False). For ids of"
                          " the model's own vocabulary,"
                          f" {start_with('--allow-token-ids')}", field)

    async def special_tokens(
        self, name: str, options: Mapping[str, Any]
    ) -> Optional[list[str]]:
        """Returns the special tokens that the model's tokenizer finds in texts; None if the list
        is too long for metadata."""
        info = await self.info(name, options)
        found = info.properties.get("special_tokens")
        if found is None and any(each.name == "text_input" for each in info.inputs):
            return None
        tokens: list[str] = json.loads(found or "[]")
        return tokens

    async def prompt_name(self, name: str, prompt: str, options: Mapping[str, Any]) -> str:
        """Returns `prompt` if the model has a prompt of this name, and else no prompt."""
        info = await self.info(name, options)
        return prompt if prompt in json.loads(info.properties.get("prompts", "[]")) else ""

    async def task_adapters(self, name: str, options: Mapping[str, Any]) -> list[str]:
        """Returns the tasks for which the model's checkpoint has adapters."""
        tasks: list[str] = json.loads(
            (await self.info(name, options)).properties.get("task_adapters", "[]"))
        return tasks

    async def labels(self, name: str, options: Mapping[str, Any]) -> list[str]:
        """Returns the labels of a classifier of texts. Labels without names are LABEL_0 and so on.

        Refuses other models.
        """
        info = await self.info(name, options)
        for output in info.outputs:
            if output.name == "scores":
                names: list[str] = json.loads(info.properties.get("labels", "[]"))
                return names or [f"LABEL_{i}" for i in range(output.shape[-1])]
        raise Refused(400, f"the model {name[:100]!r} is not a classifier of texts", "model")

    async def probabilities(self, name: str, options: Mapping[str, Any]) -> Activation:
        """Returns the activation that makes probabilities of a classifier's scores."""
        stated = (await self.info(name, options)).properties.get("probabilities")
        if stated is None:  # Daemons of earlier versions do not have the property.
            stated = "softmax" if len(await self.labels(name, options)) > 1 else "sigmoid"
        return cast(Activation, stated)
