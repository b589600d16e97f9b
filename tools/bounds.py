"""The limits that peers of the daemon share: who is refused when one peer fills them?

tools/make_docs.py makes docs/bounds.md from these rows. tests/tools/test_bounds.py fails if a limit
of the options or of the memory plan has no row, or if a row's test does not exist.
"""

from typing import NamedTuple

PEERS = "e2e/test_faults_peers.py"
CONNECTIONS = "e2e/test_faults_connections.py"
LISTENER = "server/net/grpc_1_51/grpc_listener_test.cc"
UNREAD = "server/inference/unread_answers_test.cc"
ADMISSION = "engine/schedule/admission_control_test.cc"
MEMORY = "server/common/memory_limits_test.cc"
FAIR = "engine/schedule/fair_order_test.cc"


class Bound(NamedTuple):
    name: str  # an option, or "memory: " and a line of the memory plan
    refused: str  # the answer to: who is refused when one peer fills it?
    file: str  # below tests/
    test: str


BOUNDS = [
    Bound("server.grpc.connection.max",
          "new connections of the address with its share (max_per_address); a tenth stays free",
          LISTENER, "OneAddressHasAtMostItsShareOfTheConnections"),
    Bound("server.grpc.connection.max_per_address", "new connections of this address",
          LISTENER, "OneAddressHasAtMostItsShareOfTheConnections"),
    Bound("server.grpc.max_streams",
          "this connection only: its further calls wait, or it is closed",
          CONNECTIONS, "test_streams_beyond_the_limit_are_refused"),
    Bound("server.grpc.max_calls",
          "the oldest call or stream of the address with the most, and there of the caller with "
          "the most",
          PEERS, "test_half_open_calls_of_one_peer_cost_only_this_peer"),
    Bound("server.grpc.max_metadata_bytes", "this call and its connection",
          CONNECTIONS, "test_20_kb_of_metadata_is_an_error"),
    Bound("server.grpc.max_message_bytes", "this call",
          "e2e/test_faults_messages.py", "test_a_500_mb_message_is_not_kept_in_memory"),
    Bound("server.grpc.max_rows", "this request",
          "server/protocol/request/malformed_inputs_test.cc", "BadInputTable"),
    Bound("server.grpc.memory_quota_bytes",
          "any connection: gRPC closes idle connections first, then calls on the thread that "
          "reaches the quota; clients connect again",
          "e2e/test_faults_messages.py", "test_a_500_mb_message_is_not_kept_in_memory"),
    Bound("server.grpc.max_unread_bytes",
          "requests of the caller with more than is left for others",
          UNREAD, "ACallerThatDoesNotReadIsRefusedAndKeepsALimitedAmount"),
    Bound("server.memory.limit_bytes",
          "new connections, then requests of all callers, until less memory is used; operators and "
          "probes are served",
          "server/daemon/overload_test.cc", "ConnectionsAreRefusedFirstAndThenRequests"),
    Bound("server.rate.requests_per_second", "this caller",
          "e2e/test_callers.py", "test_each_caller_has_a_separate_request_rate"),
    Bound("server.rate.requests_burst", "this caller",
          "e2e/test_callers.py", "test_each_caller_has_a_separate_request_rate"),
    Bound("server.rate.tokens_per_second", "this caller",
          "server/inference/preparation_test.cc", "ACallerIsChargedForItsTextBeforeEncoding"),
    Bound("server.rate.tokens_burst", "this caller",
          "server/security/callers_test.cc", "TheDefaultBurstIsTheTokensOfOneSecond"),
    Bound("engine.queue.max_requests", "requests of the callers with the most (max_caller_share)",
          ADMISSION, "AdmissionControlTable"),
    Bound("engine.queue.max_tokens", "requests of the callers with the most (max_caller_share)",
          ADMISSION, "AdmissionControlTable"),
    Bound("engine.queue.max_bytes", "requests of the callers with the most (max_caller_share)",
          ADMISSION, "AdmissionControlTable"),
    Bound("engine.queue.max_wait", "requests of the callers with the most (max_caller_share)",
          ADMISSION, "ACallerGetsAtMostItsShareOfTheWait"),
    Bound("engine.batch.max_batch_sequences",
          "none: sequences wait in the queue, and callers take turns",
          FAIR, "ACallerWaitsForOneSequenceOfEachOtherCaller"),
    Bound("engine.batch.max_batch_tokens",
          "none: sequences wait in the queue, and callers take turns", FAIR,
          "CallersGetEqualShares"),
    Bound("engine.batch.prefill_tokens", "none: longer prompts are computed in parts",
          "engine/schedule/paged_scheduler_test.cc",
          "ComputesAPromptInChunksAndThenTokenByToken"),
    Bound("engine.kv.memory_bytes", "none: sequences are preempted and computed again later",
          "engine/schedule/paged_scheduler_test.cc",
          "TheLastSequenceYieldsItsPagesIfThereAreTooFew"),
    Bound("engine.history.requests", "none: `sluice explain` forgets the oldest requests",
          "engine/journal/decision_history_test.cc", "FindsTheLatestDecisionsOfAnId"),
    Bound("engine.history.journal_bytes", "none: further lines are dropped and counted",
          "engine/journal/journal_test.cc", "AFullFileGetsNoMoreLines"),
    Bound("server.grpc.transfer_timeout", "this call",
          CONNECTIONS, "test_uploads_that_stall_are_ended_and_their_connection_reaped"),
    Bound("server.grpc.stream_stall_timeout", "this stream",
          "server/inference/slow_reader_test.cc", "EndsWithResourceExhausted"),
    Bound("server.grpc.stream_idle_timeout", "this stream",
          CONNECTIONS, "test_streams_whose_message_stops_half_way_are_ended"),
    Bound("server.grpc.connection.handshake_timeout", "this connection",
          CONNECTIONS, "test_handshakes_that_stall_are_ended"),
    Bound("server.grpc.connection.idle_timeout", "this connection",
          CONNECTIONS, "test_uploads_that_stall_are_ended_and_their_connection_reaped"),
    Bound("server.grpc.connection.max_age", "this connection, gracefully",
          CONNECTIONS, "test_a_connection_ends_at_its_age_and_its_calls_after_the_grace"),
    Bound("server.grpc.connection.age_grace", "the calls of this connection",
          CONNECTIONS, "test_a_connection_ends_at_its_age_and_its_calls_after_the_grace"),
    Bound("server.grpc.connection.keepalive_time", "this connection",
          CONNECTIONS, "test_a_connection_without_ping_replies_is_closed"),
    Bound("server.grpc.connection.keepalive_timeout", "this connection",
          CONNECTIONS, "test_a_connection_without_ping_replies_is_closed"),
    Bound("server.grpc.connection.min_ping_interval", "this connection",
          CONNECTIONS, "test_a_peer_that_floods_pings_is_disconnected"),
    Bound("memory: calls",
          "calls of the address with more than is left for others, then its connections",
          "server/net/grpc_1_51/live_calls_test.cc", "OneAddressLeavesPlacesForOthers"),
    Bound("memory: messages", "see server.grpc.memory_quota_bytes",
          "e2e/test_faults_messages.py", "test_a_500_mb_message_is_not_kept_in_memory"),
    Bound("memory: parsed_requests", "messages of the caller with more than is left for others",
          "base/memory_budget_test.cc", "AnOwnerGetsAtMostTheAmountLeftForOthers"),
    Bound("memory: unread_answers", "see server.grpc.max_unread_bytes",
          UNREAD, "ACallerThatDoesNotReadIsRefusedAndKeepsALimitedAmount"),
    Bound("memory: queue", "see engine.queue.max_bytes", ADMISSION, "AdmissionControlTable"),
    Bound("memory: process", "none: not taken by peers", MEMORY, "KeepsConfiguredValues"),
    Bound("memory: heaps", "see server.memory.limit_bytes",
          "server/daemon/overload_test.cc", "ConnectionsAreRefusedFirstAndThenRequests"),
    Bound("memory: adapters",
          "none: adapters are evicted, first those of the caller that owns the most",
          "engine/runner/requests/adapter_table_test.cc",
          "ACallerThatCyclesThroughAdaptersLeavesTheOthersTheirShare"),
    Bound("memory: weights", "none: taken when a model is loaded", MEMORY,
          "ModelsCountTheirHostMemory"),
    Bound("memory: activations", "none: taken when a model is loaded", MEMORY,
          "ModelsCountTheirHostMemory"),
    Bound("memory: kv", "none: sequences are preempted and computed again later", MEMORY,
          "ModelsCountTheirHostMemory"),
    Bound("memory: plans", "none: taken when a model is loaded", MEMORY,
          "ModelsCountTheirHostMemory"),
    Bound("memory: pinned", "none: taken when a model is loaded", MEMORY,
          "ModelsCountTheirHostMemory"),
]

# Options with a number that no peer fills. A name that ends with a dot stands for all options that
# start with it.
NOT_FILLED = {
    "server.log.access_sample": "a share of log lines",
    "server.lifecycle.": "the time of a shutdown",
    "engine.queue.priority_share": "a share of each queue limit",
    "engine.queue.max_caller_share": "a share of each queue limit",
    "engine.batch.max_overtakes": "the order of sequences",
    "engine.batch.priority_step": "the order of sequences",
    "engine.batch.max_queue_delay": "the time in which requests wait for a larger batch",
    "engine.watchdog.": "the time of a step of the device",
    "engine.ladder.": "the sizes of prepared plans",
    "cpu.threads": "the threads that compute",
}


def page():
    lines = [
        "# Limits that peers share",
        "",
        "```sh",
        "sluiced --config sluice.yaml --server.grpc.max-calls 20000",
        "```",
        "",
        "Each row answers one question: who is refused when one peer fills the limit? A row that",
        "starts with `memory:` is a line of the [memory limits](memory.md). `tools/make_docs.py`",
        "makes this page from `tools/bounds.py`; a limit without a row fails a test.",
        "",
        "| limit | refused when one peer fills it | test |",
        "|---|---|---|",
    ]
    lines += [f"| `{row.name}` | {row.refused} | `{row.test}` |" for row in BOUNDS]
    return "\n".join(lines) + "\n"
