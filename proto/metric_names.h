// The name and the meaning of every metric. Units are base units; the names of counters end in
// _total.
//
// Metrics of a served model have the labels model, version and device, and the labels that their
// help texts name.
#pragma once

namespace sluice::metric {

struct Metric {
  const char* name;
  const char* help;
};

// Requests. admitted_total is the sum of requests_total over all codes, requests_waiting and
// requests_running. The answers that callers get are requests_total + rejected_total +
// unauthenticated_total.
inline constexpr Metric kAdmitted{"sluice_admitted_total", "Requests that the engine accepted."};
inline constexpr Metric kRequests{"sluice_requests_total",
                                  "Accepted requests that ended, by status code."};
inline constexpr Metric kRejected{
    "sluice_rejected_total",
    "Requests that were not accepted, by reason; model is empty if unknown."};
inline constexpr Metric kCancelled{"sluice_cancelled_total",
                                   "Cancelled requests, by stage: queue (never ran) or run."};
inline constexpr Metric kDeadlineMissed{"sluice_deadline_missed_total",
                                        "Expired requests, by stage: queue (never ran) or run."};

// The durations of requests that succeeded.
inline constexpr Metric kRequestDuration{"sluice_request_duration_seconds",
                                         "From arrival to the end."};
inline constexpr Metric kQueueDuration{"sluice_queue_duration_seconds",
                                       "From acceptance to the first batch."};
inline constexpr Metric kInferenceDuration{"sluice_inference_duration_seconds",
                                           "Replay time of the batches that carried the request."};
inline constexpr Metric kFirstToken{"sluice_time_to_first_token_seconds",
                                    "From arrival to the first generated token."};
inline constexpr Metric kInterToken{
    "sluice_inter_token_duration_seconds",
    "Mean time between a request's generated tokens, one observation per request that generated "
    "more than one per row."};
inline constexpr Metric kStageDuration{
    "sluice_stage_duration_seconds",
    "By stage: admit (reading and validating a request); form, replay and deliver of a batch."};

// The device.
inline constexpr Metric kBackendErrors{
    "sluice_backend_errors_total",
    "Failed replays and hangs, by kind: hang, or the status code in lower case."};

inline constexpr Metric kDeviceBusy{
    "sluice_device_busy_seconds_total",
    "Time with a step of the model on the device. Its rate is the share of time in which the "
    "device is busy."};
inline constexpr Metric kDeviceRate{
    "sluice_device_tokens_per_second",
    "Tokens per second in full batches of the largest bucket, at the measured costs of steps; 0 if "
    "not measured."};

// Batches and plans.
inline constexpr Metric kTokens{
    "sluice_tokens_total",
    "By kind: useful (of requests), computed (worked on), bucket (capacity of the buckets used)."};
inline constexpr Metric kBatches{"sluice_batches_total", "Step batches, by trigger."};
inline constexpr Metric kBatchRows{"sluice_batch_rows", "Sequences of a step batch."};
inline constexpr Metric kBatchTokens{"sluice_batch_tokens", "Useful tokens of a step batch."};
inline constexpr Metric kPlanLookups{
    "sluice_plan_lookups_total", "Plan cache lookups, by result (hit, miss) and reason of a miss."};
inline constexpr Metric kPlanCaptures{"sluice_plan_captures_total",
                                      "Plans prepared, by result: ok or error."};
inline constexpr Metric kPlanCaptureSeconds{"sluice_plan_capture_seconds",
                                            "Time to prepare a plan."};

// Counters of each bucket, since the model was loaded. The label bucket is TOKENSxROWS for a packed
// bucket and ROWSxPOSITIONSp for a padded one. A bucket that left the ladder keeps its counters;
// only the 64 used last are kept, and the counters of the others are added to the bucket "other".
// A model has at most engine.ladder.max_buckets + 65 values of this label (for a padded ladder, its
// buckets + 65), with 20 series each.
inline constexpr Metric kBucketTokens{
    "sluice_bucket_tokens_total",
    "By kind: useful, computed, and capacity (the kind bucket of sluice_tokens_total)."};
inline constexpr Metric kBucketBatches{
    "sluice_bucket_batches_total",
    "Batches that it served, by result: hit (it was the ladder's choice) or miss (it was a "
    "substitute), and reason of a miss."};
inline constexpr Metric kBucketSequences{"sluice_bucket_sequences_total",
                                         "Sequences of these batches."};
inline constexpr Metric kBucketReplay{"sluice_bucket_replay_seconds",
                                      "Time of these batches on the device."};

// The state of each bucket in the ladder. The cost is absent until the bucket has been used.
inline constexpr Metric kBucketCapacityTokens{"sluice_bucket_capacity_tokens", "Tokens that fit."};
inline constexpr Metric kBucketCapacityRows{"sluice_bucket_capacity_rows", "Sequences that fit."};
inline constexpr Metric kBucketCost{"sluice_bucket_cost_seconds", "Decayed mean replay time."};
inline constexpr Metric kBucketMemory{"sluice_bucket_memory_bytes", "Memory of its plan."};
inline constexpr Metric kBucketActivations{
    "sluice_bucket_activation_bytes",
    "The activations of a slot if this bucket is the largest; all buckets share the slot."};
inline constexpr Metric kBucketReady{"sluice_bucket_ready",
                                     "1 if its plan is prepared and published, else 0."};

// The ladder and the traffic that its reviews use.
inline constexpr Metric kLadderChanges{
    "sluice_ladder_changes_total",
    "Buckets changed by reviews or choices of the ladder, by kind: added, removed, merged (of the "
    "previous ladder) or split (of the previous ladder)."};
inline constexpr Metric kLadderEvictions{"sluice_ladder_evictions_total",
                                         "Buckets that the memory limit kept out or removed."};
inline constexpr Metric kLadderReviews{"sluice_ladder_reviews_total",
                                       "Reviews and choices of the ladder, adopted or not."};
inline constexpr Metric kMemoryOverhead{
    "sluice_memory_overhead",
    "Bytes of activations of the buckets used / bytes for their batches' exact sizes, - 1."};
inline constexpr Metric kShapeEntropy{"sluice_shape_entropy_bits",
                                      "Entropy of the recent batches' useful tokens."};
inline constexpr Metric kLengthEntropy{"sluice_length_entropy_bits",
                                       "Entropy of the lengths that arrived recently."};
inline constexpr Metric kArrivalSequences{"sluice_arrival_sequences_per_second",
                                          "Decayed rate of arriving sequences."};
inline constexpr Metric kArrivalTokens{"sluice_arrival_tokens_per_second",
                                       "Decayed rate of arriving tokens."};
inline constexpr Metric kCostLaw{
    "sluice_cost_law",
    "Seconds of a step per unit of each term of the measured law: base, bucket_token, "
    "computed_token, context_token, distinct_position (in a model with experts: expert), "
    "sampled_row, distinct_adapter."};

// The state of the engine.
inline constexpr Metric kWaiting{"sluice_requests_waiting",
                                 "Accepted requests that have not run yet."};
inline constexpr Metric kRunning{"sluice_requests_running",
                                 "Requests that have started to run and are not done."};
inline constexpr Metric kSequencesWaiting{"sluice_sequences_waiting",
                                          "Rows that hold no KV pages and wait for a step."};
inline constexpr Metric kSequencesRunning{
    "sluice_sequences_running", "Rows that hold KV pages, or are computed by the current step."};
inline constexpr Metric kQueuedTokens{
    "sluice_queued_tokens",
    "Tokens of the next steps of the sequences in the queue, also of running sequences between two "
    "steps. Requests in the backlog (docs/admission.md) do not count."};
inline constexpr Metric kQueueBytes{
    "sluice_queue_bytes",
    "Memory of the waiting and running requests, with their longest replies."};
inline constexpr Metric kOldestAge{
    "sluice_queue_oldest_age_seconds",
    "Age of the oldest sequence in the queue that holds no KV pages, since its request entered the "
    "queue. Running sequences and requests in the backlog (docs/admission.md) do not count."};
inline constexpr Metric kDrain{"sluice_estimated_drain_seconds",
                               "Estimated time to compute the queue; for autoscaling."};
inline constexpr Metric kTimeToReady{
    "sluice_time_to_ready_seconds",
    "Time from the start of packing the weights until the model was ready."};
inline constexpr Metric kSteps{"sluice_engine_steps_total", "Runs of the model."};
inline constexpr Metric kPlanMemory{"sluice_plan_memory_bytes", "Memory of all prepared plans."};
inline constexpr Metric kDeviceMemory{
    "sluice_device_memory_bytes",
    "By state: weights, adapters, plans, activations (held now; on a CPU, for the buckets that are "
    "used), "
    "head_graphs, kv; and in host memory pinned, copied (weight files in memory) and mapped "
    "(weight files, whose pages the system may drop)."};

// Low-rank adapters, by adapter. At most 64 adapters of a model have series of their own: the ones
// that requests used first. The others, and unloaded ones, are added up under "(other)".
inline constexpr Metric kAdapterRequests{"sluice_adapter_requests_total",
                                         "Requests of the adapter that ended."};
inline constexpr Metric kAdapterTokens{"sluice_adapter_tokens_total",
                                       "Tokens of these requests, of prompts and generated ones."};
inline constexpr Metric kAdapterLoads{"sluice_adapter_loads_total",
                                      "Times that the adapter was loaded into memory."};
inline constexpr Metric kAdapterEvictions{
    "sluice_adapter_evictions_total",
    "Times that the adapter was evicted to make room for others."};
inline constexpr Metric kAdapterBytes{"sluice_adapter_bytes",
                                      "Memory of the adapter; 0 if it is not in memory."};
inline constexpr Metric kAdapterLimit{"sluice_adapter_limit_bytes",
                                      "The most memory of all adapters of the model."};
inline constexpr Metric kLoraRequests{
    "sluice_lora_requests_info",
    "The adapters of all models for an endpoint picker, as MODEL:ADAPTER, separated by commas: "
    "running_lora_adapters (in memory; at most 256 of a model), waiting_lora_adapters (requests "
    "wait for their load) and max_lora (about the number that fits in memory). The value is the "
    "time in seconds since 1970."};

// KV pages. All of these are 0 if no pages are kept between steps.
inline constexpr Metric kKvPages{
    "sluice_kv_pages",
    "By state: held (by sequences), idle (kept for sequences with the same beginning), free."};
inline constexpr Metric kKvPageTokens{"sluice_kv_page_tokens", "Tokens that a KV page holds."};
inline constexpr Metric kKvEvicted{"sluice_kv_pages_evicted_total",
                                   "Idle KV pages that were reused for other tokens."};
inline constexpr Metric kPrefixTokens{
    "sluice_prefix_tokens_total",
    "Tokens of prompts that began to run, by result: hit (found in pages, not computed), miss."};
inline constexpr Metric kDraftTokens{"sluice_draft_tokens_total",
                                     "Drafted tokens that steps computed, by source (ngram, "
                                     "forced, prediction, model) and result: accepted, "
                                     "rejected."};
inline constexpr Metric kPreemptions{
    "sluice_preemptions_total",
    "Running sequences that gave up their pages to others; their tokens are computed again."};

// Diagnostics of exclusive self attention (XSA), over the requests that asked for them.
inline constexpr Metric kXsaCosSim{
    "sluice_xsa_cos_sim",
    "Mean of the output xsa_cos_sim over the heads and positions of all requests that returned it, "
    "by layer (from 0); docs/api.md explains how to read it."};
inline constexpr Metric kXsaProjFrac{"sluice_xsa_proj_frac",
                                     "Mean of the output xsa_proj_frac, computed in the same way."};
inline constexpr Metric kXsaPositions{"sluice_xsa_positions_total",
                                      "Positions that entered these means."};

// The daemon.
inline constexpr Metric kLogDropped{"sluice_log_dropped_total",
                                    "Log records dropped because the writer could not keep up, or "
                                    "because standard error could not be written."};
inline constexpr Metric kFileWriteErrors{
    "sluice_file_write_errors_total",
    "Writes to files that failed, for example because the disk was full, by file: journal "
    "(engine.history.journal) or ladder (engine.ladder.file)."};
inline constexpr Metric kJournalLinesDropped{
    "sluice_journal_lines_dropped_total",
    "Lines missing in the journals because the disk was too slow or full, or because a journal "
    "reached engine.history.journal_bytes. Steps of a replaced model have no lines and do not "
    "count."};
inline constexpr Metric kReloadSuccess{
    "sluice_config_reload_success",
    "1 if the last reload of the configuration succeeded or there was no reload, else 0."};
inline constexpr Metric kNeedsRestart{
    "sluice_config_needs_restart",
    "1 for each option, by option, that the last reload found changed since the start and that "
    "only a restart applies; absent if there is none."};
inline constexpr Metric kReloads{"sluice_config_reloads_total",
                                 "Reloads of the configuration, by result: ok or error."};
inline constexpr Metric kCertificateExpiry{
    "sluice_certificate_expiry_timestamp_seconds",
    "When the certificate in use expires, in seconds since 1970; absent without TLS."};
inline constexpr Metric kSecretFilesValid{
    "sluice_secret_files_valid",
    "1 if the last check accepted the files of this kind, certificate or callers; 0 if it refused "
    "them, also because they have expired, and the last valid files stay in use."};
inline constexpr Metric kSecretReads{
    "sluice_secret_reads_total",
    "Checks that found new contents or a new error in the files, by kind: certificate or callers, "
    "and result: ok, or error (the last valid files stay in use)."};

// Connections and calls.
inline constexpr Metric kConnectionsOpen{"sluice_connections_open",
                                         "Open connections, by listener: grpc, admin, health."};
inline constexpr Metric kConnectionsRefused{
    "sluice_connections_refused_total",
    "Connections that were not accepted, by reason: limit (server.grpc.connection.max, closed at "
    "once), memory (near server.memory.limit_bytes, closed at once), or accept_failed (the system "
    "call failed, usually for lack of descriptors)."};
inline constexpr Metric kHandshakesFailed{
    "sluice_handshakes_failed_total",
    "TLS handshakes that failed, by reason: refused (the daemon sent an alert, for example for a "
    "peer without a valid certificate), refused_by_peer (the peer sent one, for example because it "
    "does not trust the certificate), or incomplete (the peer sent no TLS, ended the connection, "
    "as a gRPC client does that does not trust the certificate, or exceeded "
    "server.grpc.connection.handshake_timeout)."};
inline constexpr Metric kConnectionsBrokenOff{
    "sluice_connections_broken_off_total",
    "Connections closed because the peer ignored the limits on calls or metadata."};
inline constexpr Metric kCallsRefused{
    "sluice_calls_refused_total",
    "Calls refused because their address had its share of all calls in progress, by listener."};
inline constexpr Metric kCallsDisplaced{
    "sluice_calls_displaced_total",
    "Calls ended because server.grpc.max_calls others waited and their peer had the most of them, "
    "by listener and wait: message (of a unary call), idle_stream. The listener health is for "
    "health checks at every address."};
inline constexpr Metric kCallbacks{
    "sluice_callbacks_total",
    "gRPC callbacks on the threads that serve all connections, by event: begin, message, written, "
    "cancelled, end. A callback inside another one is not counted separately."};
inline constexpr Metric kCallbackSeconds{
    "sluice_callback_seconds_total",
    "Elapsed time of these callbacks, by event. It includes time spent waiting for a processor."};
inline constexpr Metric kSlowCallbacks{
    "sluice_slow_callbacks_total",
    "Callbacks that took longer than 2 ms, by event; the log names the slowest."};
inline constexpr Metric kTransfersCancelled{"sluice_transfers_cancelled_total",
                                            "Calls ended because their message or answer took "
                                            "longer than server.grpc.transfer_timeout."};
inline constexpr Metric kIdleStreamsEnded{
    "sluice_idle_streams_ended_total",
    "Streams ended because no request was in progress and no complete message arrived within "
    "server.grpc.stream_idle_timeout."};
inline constexpr Metric kMemoryBytes{
    "sluice_memory_bytes",
    "Memory in use now, by use: parsed_requests, unread_answers, and all, the resident memory of "
    "the process."};
inline constexpr Metric kMemoryLimitBytes{
    "sluice_memory_limit_bytes", "The memory limits by use; all is server.memory.limit_bytes."};
inline constexpr Metric kOverload{
    "sluice_memory_overload",
    "How the daemon saves memory: 0 normal, 1 closes new connections, 2 also refuses requests, 3 "
    "also ends the largest unread answers."};
inline constexpr Metric kAnswersCut{"sluice_answers_cut_total",
                                    "Answers ended unread for lack of memory."};
inline constexpr Metric kCallerRequests{
    "sluice_caller_requests_total",
    "Requests that the caller's limits admitted, by caller as named in server.auth.callers_file."};
inline constexpr Metric kCallerTokens{
    "sluice_caller_tokens_total", "Tokens of the admitted requests, as server.rate counts them."};
inline constexpr Metric kCallerRefused{"sluice_caller_refused_total",
                                       "Requests that the caller's limits refused."};
inline constexpr Metric kUnauthenticated{
    "sluice_unauthenticated_total",
    "Calls without a known credential, by reason: token_unknown, credential_missing."};
inline constexpr Metric kModelLoads{
    "sluice_model_loads_total",
    "Attempts to load models, by result: ok or error. Each load by name is an attempt, and so is "
    "the start and each reload that loads models or fails to. Each model of the repository that "
    "the start or a reload leaves out is one more error."};
inline constexpr Metric kModelsFailed{
    "sluice_models_failed",
    "Models of the configuration or the repository whose last load failed. An older version may "
    "still be served."};
inline constexpr Metric kBuildInfo{"sluice_build_info", "Always 1; label version is the daemon's."};
inline constexpr Metric kInstanceInfo{
    "sluice_instance_info",
    "Always 1; label id is drawn at each start, so that sluice doctor can detect the metrics of "
    "another daemon."};
inline constexpr Metric kBackendInfo{
    "sluice_backend_info",
    "Always 1; labels device and profile, the numerics profile: same profile, same bits."};
inline constexpr Metric kAttentionInfo{
    "sluice_attention_info",
    "Always 1 for a model; label variant is the order in which attention reads keys "
    "(engine.attention.variant). All variants give the same bits."};

}  // namespace sluice::metric
