"""The gateway serves a Sluice daemon, which uses gRPC, over HTTP. See `sluice-gateway --help`.

| module | contents |
| --- | --- |
| `hostile` | the checks that every request passes first |
| `serving` | the handling of one HTTP call from start to end, for every API |
| `inference_protocol`, `openai`, `completions`, `rerank` | the APIs |
| `chat` | templates that turn messages into a prompt |
| `app` | the routes, health and metrics |
"""
