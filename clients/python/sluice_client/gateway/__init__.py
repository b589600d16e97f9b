"""The gateway: HTTP for a Sluice daemon, which speaks gRPC. `sluice-gateway --help` starts here.

| module | holds |
| --- | --- |
| `hostile` | what is checked of every request before anything else is done with it |
| `serving` | one HTTP call from its first byte to its last, whichever API it is of |
| `inference_protocol`, `openai`, `completions`, `rerank` | the APIs |
| `chat` | templates that turn messages into a prompt |
| `app` | the routes, health and metrics |
"""
