"""The routes and health checks of the gateway."""

from __future__ import annotations

import difflib
import functools
from typing import Any, Callable, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from . import (
    adapters,
    completions,
    encode,
    extract,
    inference_protocol,
    openai,
    rerank,
    tei,
    vllm,
    zero_shot,
)
from .call import Answer, Failure, HttpCall, Whole
from .head import head_of, request_id_of
from .serving import Endpoint, Gateway, Handler

_V2_MODEL = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")


def routes(gateway: Gateway) -> list[Route]:
    """Returns all routes. The metrics use a route's path pattern as the label."""

    def route(path: str, api: Any, handler: Handler, method: str = "GET") -> Route:
        return Route(path, Endpoint(gateway, path, api, handler), methods=[method])

    def post(paths: str, api: Any, handler: Handler) -> list[Route]:
        return [route(path, api, handler, "POST") for path in paths.split()]

    async def about(gateway: Gateway, call: HttpCall) -> Answer:
        """Answers a caller that looks for the API."""
        return Whole({
            "name": "sluice-gateway",
            "message": "This is the HTTP gateway of Sluice. docs/http.md describes its paths; GET"
                       " /v1/models lists the models.",
            "paths": _paths_of(made),
        })

    v2, oai = inference_protocol, openai
    made = [
        Route("/livez", _livez),
        Route("/readyz", _readyz(gateway)),
        route("/", oai.error, about),
        route("/v2", v2.error, v2.server),
        route("/v2/health/live", v2.error, v2.live),
        route("/v2/health/ready", v2.error, v2.ready),
        route("/v1/models", oai.error, oai.models),
        route("/v1/models/{model:path}", oai.error, oai.model),
        route("/v1/embeddings", oai.error, oai.embeddings, "POST"),
        route("/v1/completions", oai.error, completions.completions, "POST"),
        route("/v1/chat/completions", oai.error, completions.chat_completions, "POST"),
        route("/v1/encode", oai.error, encode.encode, "POST"),
        route("/v1/extract", oai.error, extract.extract, "POST"),
        route("/v1/load_lora_adapter", oai.error, adapters.load, "POST"),
        route("/v1/unload_lora_adapter", oai.error, adapters.unload, "POST"),
        *post("/v1/rerank /v2/rerank", rerank.error, rerank.rerank),
        *post("/rerank", rerank.either_error, rerank.rerank_of_either),
        *post("/tokenize", rerank.either_error, rerank.tokenize_of_either),
        *post("/v1/embed", rerank.error, rerank.embed_v1),
        *post("/v2/embed", rerank.error, rerank.embed),
        *post("/score /v1/score", oai.error, vllm.score),
        *post("/classify", oai.error, vllm.classify),
        *post("/pooling", oai.error, vllm.pooling),
        *post("/", tei.error, tei.root),
        *post("/embed", tei.error, tei.embed),
        *post("/embed_all", tei.error, tei.embed_all),
        *post("/embed_sparse", tei.error, tei.embed_sparse),
        *post("/predict", tei.error, tei.predict),
        *post("/similarity", tei.error, tei.similarity),
        *post("/zero-shot-classification", tei.error, zero_shot.zero_shot),
        route("/info", tei.error, tei.info),
        Route("/health", _readyz(gateway)),
    ]
    for path in _V2_MODEL:
        made += [
            route(path, v2.error, v2.model),
            route(f"{path}/ready", v2.error, v2.model_ready),
            route(f"{path}/infer", v2.error, v2.infer, "POST"),
        ]
    return made


def _paths_of(made: Sequence[Route]) -> list[str]:
    return sorted({each.path.replace(":path", "") for each in made})


class _Direct:
    """Calls the endpoint of a path that has no parameters. `others` gets all other calls.

    Starlette compares a path with the expression of each route, which takes longer.
    """

    def __init__(self, made: Sequence[Route], others: Any) -> None:
        self._endpoints = {
            (method, route.path): route.endpoint
            for route in made
            if isinstance(route.endpoint, Endpoint) and "{" not in route.path
            for method in route.methods or ()
        }
        self._others = others

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        called = self._endpoints.get((scope["method"], scope["path"]), self._others)
        await called(scope, receive, send)


def application(gateway: Gateway) -> Any:
    """Returns the ASGI application."""
    made = routes(gateway)
    handlers: Any = {HTTPException: functools.partial(_no_route, _paths_of(made))}
    direct = _Direct(made, Starlette(routes=made, exception_handlers=handlers))
    if not gateway.origins:
        return direct
    return CORSMiddleware(
        direct,
        allow_origins=sorted(gateway.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after", "retry-after-ms", "x-truncated-tokens",
                        "inference-header-content-length"],
    )


def probes(gateway: Gateway) -> Starlette:
    """Returns the application of the listener for probes and metrics."""

    async def metrics(request: Request) -> Response:
        content = generate_latest(gateway.metrics.registry)
        return Response(content, headers={"content-type": CONTENT_TYPE_LATEST})

    return Starlette(
        routes=[
            Route("/livez", _livez), Route("/readyz", _readyz(gateway)), Route("/metrics", metrics)
        ]
    )


# Paths of OpenAI's API that the gateway does not have, and the paths to use in their place.
_INSTEAD = {"/v1/responses": "/v1/chat/completions", "/v1/moderations": "/classify"}
# The paths that an error names if no path is like the unknown one.
_MAIN = ("/v1/chat/completions", "/v1/embeddings", "/v1/rerank")


async def _no_route(paths: Sequence[str], request: Request, error: Exception) -> Response:
    """Answers an unknown path or method in the error format of the API that the path matches."""
    assert isinstance(error, HTTPException)
    api = inference_protocol.error if request.url.path.startswith("/v2") else openai.error
    given = request.url.path[:200]
    path = repr(given)
    instead = next((f"; use {other} instead of {each}" for each, other in _INSTEAD.items()
                    if f"{request.url.path}/".startswith(f"{each}/")), "")
    if f"/v1{request.url.path}" in paths:
        instead = f"; use /v1{request.url.path} (the base URL of OpenAI's clients ends with /v1)"
    near = difflib.get_close_matches(given, paths) or _MAIN
    message = (f"{path} is not a path of this gateway{instead}. Paths are {', '.join(near)}; GET /"
               " lists all of them")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{request.method[:20]} is not allowed for {path}; use {allowed}"
    failure = Failure(error.status_code, message)
    headers = {**(error.headers or {}), "x-request-id": request_id_of(head_of(request.headers.raw))}
    return JSONResponse(api(failure), error.status_code, headers=headers)


async def _livez(request: Request) -> Response:
    return JSONResponse({"live": True})


def _readyz(gateway: Gateway) -> Callable[[Request], Any]:
    async def readyz(request: Request) -> Response:
        """Answers 200 if the daemon is ready for calls."""
        ready = await gateway.readiness.ready()
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    return readyz
