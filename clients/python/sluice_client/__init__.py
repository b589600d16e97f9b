"""The client of the Sluice inference daemon.

    from sluice_client import Client

    with Client("localhost:8001") as client:
        print(client.generate("demo", "In the beginning", max_tokens=40).text)

`AsyncClient` has the same methods for asyncio. `sluice_client.gateway` is the HTTP gateway.
"""

from ._channel import Tls
from .aio import AsyncClient
from .client import Client
from .errors import (
    Cancelled,
    DeadlineExceeded,
    DeadlineUnreachable,
    InvalidArgument,
    ModelChanged,
    NotAllowed,
    NotFound,
    NotServed,
    Overloaded,
    SluiceError,
    Unavailable,
)
from .results import (
    Answer,
    Candidate,
    Classification,
    Embeddings,
    Entity,
    Generation,
    IndexEntry,
    ModelInfo,
    Ranked,
    Recommendation,
    Results,
    Score,
    ServerInfo,
    TensorInfo,
    Token,
    ZeroShot,
)
from .retry import NEVER, Retry
from .tensors import Tensor

__all__ = [
    "NEVER",
    "Answer",
    "AsyncClient",
    "Cancelled",
    "Candidate",
    "Classification",
    "Client",
    "DeadlineExceeded",
    "DeadlineUnreachable",
    "Embeddings",
    "Entity",
    "Generation",
    "IndexEntry",
    "InvalidArgument",
    "ModelChanged",
    "ModelInfo",
    "NotAllowed",
    "NotFound",
    "NotServed",
    "Overloaded",
    "Ranked",
    "Recommendation",
    "Results",
    "Retry",
    "Score",
    "ServerInfo",
    "SluiceError",
    "Tensor",
    "TensorInfo",
    "Tls",
    "Token",
    "Unavailable",
    "ZeroShot",
]
