"""The paths of vLLM that load and unload low-rank adapters: /v1/load_lora_adapter and
/v1/unload_lora_adapter.

They change the daemon, so they need the token of --admin-token-file. The daemon reads only folders
in the model's folder of adapters.
"""

from __future__ import annotations

from typing import Any, Mapping

from .. import tasks
from .call import Answer, HttpCall, Whole
from .daemon import Admin
from .hostile import Fields, Refused, parse_object, start_with
from .serving import Gateway

_MAX_NAME_BYTES = 257  # MODEL:ADAPTER
_MAX_PATH_BYTES = 4096


def _admin(gateway: Gateway) -> Admin:
    if gateway.admin is None:
        raise Refused(404, "this gateway loads no adapters;"
                      f" {start_with('--admin HOST:PORT --admin-token-file FILE')}")
    return gateway.admin


async def _name(
    gateway: Gateway, admin: Admin, fields: Fields, options: Mapping[str, Any]
) -> tuple[str, str]:
    """Returns the name of a request, and the daemon's name MODEL:ADAPTER."""
    given: str = fields.text("lora_name", most=_MAX_NAME_BYTES)
    if not given:
        raise fields.refuse("lora_name", "is empty")
    if ":" in given:
        return given, given
    # The caller may be unknown at the address for inference.
    models = gateway.models.of(admin.client)
    return given, f"{await models.name_of(None, options)}:{given}"


async def load(gateway: Gateway, call: HttpCall) -> Answer:
    admin = _admin(gateway)
    options = admin.options(call)
    fields = parse_object(call.body, gateway.limits, call.hold)
    given, name = await _name(gateway, admin, fields, options)
    path: str = fields.text("lora_path", most=_MAX_PATH_BYTES)
    if not path:
        raise fields.refuse("lora_path", "is empty")
    replace = fields.flag("load_inplace", False)
    fields.accept("is_3d_lora_weight", False)
    fields.end()
    if not replace:
        served = await admin.client.models(ready=True, **options)
        if any(each.name == name for each in served):
            raise fields.refuse("lora_name", f"is {given!r}, and this adapter has already been"
                                " loaded; send load_inplace: true to replace it")
    await admin.client._run(tasks.load_model(name, path), options)
    return _done(f"Success: LoRA adapter '{given}' added successfully.")


async def unload(gateway: Gateway, call: HttpCall) -> Answer:
    admin = _admin(gateway)
    options = admin.options(call)
    fields = parse_object(call.body, gateway.limits, call.hold)
    given, name = await _name(gateway, admin, fields, options)
    fields.ignore("lora_int_id")
    fields.end()
    await admin.client._run(tasks.unload_model(name), options)
    return _done(f"Success: LoRA adapter '{given}' removed successfully.")


def _done(text: str) -> Whole:
    return Whole(text.encode(), headers={"content-type": "text/plain; charset=utf-8"})
