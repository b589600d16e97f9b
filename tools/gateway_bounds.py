"""The limits of the HTTP gateway, and who is refused when one peer fills one of them.

`tools/make_docs.py` makes the table in docs/http.md from these rows. A test compares them with the
gateway's options and limits, and checks that the named tests exist.
"""

from typing import NamedTuple


class Bound(NamedTuple):
    name: str  # the option of the gateway, or the constant in its source
    resource: str
    value: str  # of a constant; the default of an option is read from the program
    refused: str  # who is refused when one peer fills it, and how
    reason: str  # the label of sluice_gateway_refused_total, or empty
    test: str


PEER = "the peer, with 429 once it holds four times the rest; all with 503 if nothing is left"
ITSELF = "the request, with"

BOUNDS = (
    Bound("--max-connections", "connections of the listener, with TLS handshakes", "",
          "the peer: its oldest idle connection is closed, or else its new one", "connections",
          "test_silent_connections_of_a_peer_leave_room_for_others_and_for_probes"),
    Bound("_MAX_PROBES", "connections of the listener `--metrics`", "64",
          "the peer: its oldest idle connection is closed", "connections",
          "test_silent_connections_of_a_peer_leave_room_for_others_and_for_probes"),
    Bound("--max-in-flight", "calls in progress", "", PEER, "calls",
          "test_a_peer_that_fills_the_calls_leaves_room_for_others"),
    Bound("--max-pending-bytes", "estimated memory of the calls in progress", "",
          PEER + "; 413 if the request exceeds it by itself", "memory",
          "test_a_peer_that_fills_the_memory_leaves_room_for_others"),
    Bound("--max-daemon-calls", "calls in progress at the daemon", "",
          "none: calls wait, and callers take turns; a call ends with 504 at its deadline", "",
          "test_callers_take_turns_at_the_daemon"),
    Bound("--daemon-connections", "connections to each address of the daemon", "",
          "none: a call uses the connection with the fewest calls", "",
          "test_calls_are_spread_over_connections"),
    Bound("--max-body-bytes", "bytes of a body", "", ITSELF + " 413", "size",
          "test_body_without_content_length_is_limited"),
    Bound("--head-timeout", "seconds for a head", "", "the connection is closed", "",
          "test_silent_connections_are_closed"),
    Bound("--body-timeout", "seconds for a body", "", ITSELF + " 408", "slow",
          "test_silent_connections_are_closed"),
    Bound("--stall-timeout", "seconds for a piece of an answer to be read", "",
          "the connection is closed", "stalled",
          "test_connection_is_dropped_if_the_caller_does_not_read"),
    Bound("--template-timeout", "seconds for a chat template", "",
          ITSELF + " 400; other chats wait, and callers take turns", "template",
          "test_time_and_memory_of_a_template_are_limited"),
    Bound("--max-timeout", "seconds of a call, or of a stream until its first part", "",
          ITSELF + " 504; a longer deadline of a call is reduced", "",
          "test_a_call_ends_at_the_longest_deadline"),
    Bound("_MEMORY_BYTES", "address space of the process that renders templates", "256 MiB",
          ITSELF + " 400", "template", "test_time_and_memory_of_a_template_are_limited"),
    Bound("MAX_HEAD_BYTES", "bytes of a head", "16 KiB", ITSELF + " 431", "head",
          "test_requests_over_a_limit_of_http_are_refused"),
    Bound("_MAX_AUTHORIZATION_BYTES", "bytes of `authorization`", "4 KiB", ITSELF + " 431", "head",
          "test_requests_over_a_limit_of_http_are_refused"),
    Bound("_MAX_CHUNKS", "chunks of a body", "1024, and one for each 32 bytes", ITSELF + " 400",
          "chunks", "test_requests_over_a_limit_of_http_are_refused"),
    Bound("_MAX_FRAMING_BYTES", "bytes after a head that are not content, such as trailers",
          "64 KiB and the content's bytes", ITSELF + " 400", "chunks",
          "test_requests_over_a_limit_of_http_are_refused"),
    Bound("max_depth", "levels of JSON", "", ITSELF + " 400", "size",
          "test_hostile_json_is_refused"),
    Bound("max_values", "objects, arrays and texts of a body", "", ITSELF + " 400", "size",
          "test_numbers_that_overflow_and_bodies_of_many_values_are_refused"),
    Bound("max_messages", "messages of a chat", "", ITSELF + " 400", "",
          "test_numbers_that_overflow_and_bodies_of_many_values_are_refused"),
    Bound("max_choices", "answers to a prompt: `n`", "", ITSELF + " 400", "",
          "test_errors_have_the_shape_of_openai"),
    Bound("MAX_ROWS", "texts, lists of token ids or answers of a call", "2048", ITSELF + " 400",
          "size", "test_rows_and_padding_are_limited_before_they_take_memory"),
    Bound("MAX_PADDED_IDS", "token ids of a call, all lists padded to the longest", "1,048,576",
          ITSELF + " 400", "size", "test_rows_and_padding_are_limited_before_they_take_memory"),
)
