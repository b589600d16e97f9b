"""OpenTelemetry spans of requests; optional, needs the extra [tracing].

A span starts with the head of a request and ends with its answer. Its parent is the caller's
`traceparent`. The daemon receives the span's own traceparent and writes the trace id into its
access log.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional, Protocol

from .head import Head

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_SERVICE = "sluice-gateway"
# The most spans that wait for the collector, and the interval between exports.
_MAX_QUEUED = 2048
_EXPORT_INTERVAL_MS = 1000


class Span(Protocol):
    """One request's span."""

    def traceparent(self) -> Optional[str]:
        """Returns the traceparent for the daemon, or None to pass on the caller's."""

    def end(self, status: int) -> None:
        """Records the HTTP status of the answer."""


class _NoSpan:
    def traceparent(self) -> Optional[str]:
        return None

    def end(self, status: int) -> None:
        pass


class Tracing:
    """Creates spans, or does nothing without a collector's address."""

    def __init__(self, endpoint: str = "") -> None:
        """`endpoint` is the URL of an OTLP/HTTP collector, such as
        http://localhost:4318/v1/traces. Raises ImportError without the extra [tracing]."""
        self._provider: Optional[TracerProvider] = _provider(endpoint) if endpoint else None

    @contextmanager
    def span(self, method: str, route: str, headers: Head, request_id: str) -> Iterator[Span]:
        """Yields the span of a request for the path pattern `route`."""
        if self._provider is None:
            yield _NoSpan()
            return
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator = TraceContextTextMapPropagator()
        parent = propagator.extract(headers)
        tracer = self._provider.get_tracer(_SERVICE)
        span = tracer.start_span(
            f"{method} {route}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "sluice.request_id": request_id,
            },
        )
        try:
            yield _OpenTelemetrySpan(span)
        finally:
            span.end()

    def close(self) -> None:
        """Sends the waiting spans, for at most a few seconds."""
        if self._provider is not None:
            self._provider.shutdown()


class _OpenTelemetrySpan:
    def __init__(self, span: Any) -> None:
        self._span = span

    def traceparent(self) -> Optional[str]:
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, set_span_in_context(self._span))
        return carrier.get("traceparent")

    def end(self, status: int) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))


def _provider(endpoint: str) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": _SERVICE}))
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=2)
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter, max_queue_size=_MAX_QUEUED, schedule_delay_millis=_EXPORT_INTERVAL_MS
        )
    )
    return provider
