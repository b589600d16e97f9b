"""The gateway serves a Sluice daemon, which uses gRPC, over HTTP. See `sluice-gateway --help`.

| module | contents |
| --- | --- |
| `protocol` | HTTP connections and their limits |
| `fairness` | how callers share the gateway's resources |
| `hostile` | the checks that every request passes first |
| `serving` | the handling of one HTTP call from start to end, for every API |
| `head`, `writer` | the checks of a call's head, and the response |
| `call`, `daemon` | what handlers use: requests and answers, and calls to the daemon |
| `models` | checks of requests against the metadata of models |
| `inference_protocol`, `openai`, `completions`, `rerank`, `tei`, `vllm` | the APIs |
| `chat`, `render` | templates that turn messages into a prompt, and the process that renders them |
| `app` | the routes, health and metrics |
"""
