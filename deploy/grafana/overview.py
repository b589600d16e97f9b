"""Rate, errors, latency and queue."""

import pathlib
import sys

from panels import Dashboard, histogram, series, stat
from queries import BAD_HIGH, DAEMON, MODEL, NAMESPACE, RECORDED, VARIABLES, mean, quantiles, rate

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
from reasons import reasons

GATEWAY = f'{{job="sluice-gateway",{NAMESPACE}}}'

# Refusals know no version, and no model if the caller's did not exist. The side at fault follows
# the table of base/reason.h; a reason that is not in it counts as the server's.
CALLERS = "|".join(reason.name for reason in reasons() if reason.at_fault == "caller")
REFUSED = {
    side: f'{{job="sluice",{NAMESPACE},model=~"$model|",pod=~"$pod",reason{matcher}"{CALLERS}"}}'
    for side, matcher in (("server", "!~"), ("caller", "=~"))
}

DASHBOARD = Dashboard(
    "sluice-overview",
    "Sluice / overview",
    "Rate, errors, latency and queue.",
    VARIABLES,
    [
        (
            "At a glance",
            [
                stat("Replicas", "none", f"sum(up{DAEMON})"),
                stat("Requests", "reqps", rate("sluice_requests_total")),
                stat(
                    "Failed",
                    "percentunit",
                    f"max(model:sluice_error_ratio:rate5m{RECORDED})",
                    "Of the requests that the server had to answer; objective 0.1%.",
                    BAD_HIGH,
                    2,
                ),
                stat(
                    "Slower than 1 s",
                    "percentunit",
                    f"max(model:sluice_slow_ratio:rate5m{RECORDED})",
                    "Of the successes; objective 1%.",
                    ((None, "green"), (0.01, "orange"), (0.1, "red")),
                    2,
                ),
                stat("Median", "s", quantiles("sluice_request_duration_seconds")[0][0]),
                stat(
                    "Queued work",
                    "s",
                    f"max(sluice_estimated_drain_seconds{MODEL})",
                    "Of the fullest replica.",
                ),
            ],
        ),
        (
            "Requests",
            [
                series(
                    "Answers by code",
                    "reqps",
                    (rate("sluice_requests_total", by="code"), "{{code}}"),
                    stacked=True,
                ),
                series(
                    "Refused requests",
                    "reqps",
                    *(
                        (
                            rate("sluice_rejected_total", matchers, "reason"),
                            f"{{{{reason}}}}, {side}",
                        )
                        for side, matchers in REFUSED.items()
                    ),
                    about="Whose fault a reason is, and its remedy: docs/errors.md.",
                ),
                series(
                    "Budget burn",
                    "short",
                    (
                        f"max(model:sluice_error_ratio:rate1h{RECORDED}) / 0.001",
                        "errors, 1 h",
                    ),
                    (f"max(model:sluice_slow_ratio:rate1h{RECORDED}) / 0.01", "slow, 1 h"),
                    about="1 spends the budget in 30 days; 14.4 pages.",
                ),
                series("Latency", "s", *quantiles("sluice_request_duration_seconds")),
                series(
                    "Where the time goes",
                    "s",
                    (mean("sluice_queue_duration_seconds"), "waiting"),
                    (mean("sluice_inference_duration_seconds"), "in batches"),
                    (mean("sluice_request_duration_seconds"), "from arrival to the end"),
                    about="Means per request.",
                ),
                series(
                    "Gave up",
                    "reqps",
                    (rate("sluice_cancelled_total", by="stage"), "cancelled, {{stage}}"),
                    (rate("sluice_deadline_missed_total", by="stage"), "too late, {{stage}}"),
                ),
                histogram("Latency, all requests", "s", "sluice_request_duration_seconds", MODEL),
                series(
                    "Requests by pod",
                    "reqps",
                    (rate("sluice_requests_total", by="pod"), "{{pod}}"),
                    width=12,
                ),
            ],
        ),
        (
            "Queue and engine",
            [
                series(
                    "Waiting and running",
                    "short",
                    (f"sum by (pod) (sluice_requests_waiting{MODEL})", "waiting, {{pod}}"),
                    (f"sum by (pod) (sluice_requests_running{MODEL})", "running, {{pod}}"),
                ),
                series(
                    "Oldest request",
                    "s",
                    (f"max by (pod) (sluice_queue_oldest_age_seconds{MODEL})", "{{pod}}"),
                ),
                series(
                    "Queued work",
                    "s",
                    (f"sum by (pod) (sluice_estimated_drain_seconds{MODEL})", "{{pod}}"),
                    about="The autoscalers use this metric.",
                ),
                series(
                    "Step batches by trigger",
                    "ops",
                    (rate("sluice_batches_total", by="trigger"), "{{trigger}}"),
                    stacked=True,
                ),
                series(
                    "Step replay time",
                    "s",
                    (mean("sluice_stage_duration_seconds", "pod, stage"), "{{stage}}, {{pod}}"),
                ),
                series(
                    "Tokens",
                    "short",
                    (rate("sluice_tokens_total", by="kind"), "{{kind}}"),
                    about="Per second.",
                ),
                series(
                    "Queue size",
                    "bytes",
                    (f"sum by (pod) (sluice_queue_bytes{MODEL})", "{{pod}}"),
                ),
                series(
                    "Queued tokens",
                    "short",
                    (f"sum by (pod) (sluice_queued_tokens{MODEL})", "{{pod}}"),
                ),
                series(
                    "Log records dropped",
                    "short",
                    (rate("sluice_log_dropped_total", DAEMON, "pod"), "{{pod}}"),
                ),
                series(
                    "Failed writes of files",
                    "short",
                    (rate("sluice_file_write_errors_total", DAEMON, "pod, file"),
                     "{{pod}} {{file}}"),
                ),
                series(
                    "Lost lines of the journal",
                    "short",
                    (rate("sluice_journal_lines_dropped_total", DAEMON, "pod"), "{{pod}}"),
                ),
                series(
                    "Versions of the daemon",
                    "none",
                    (f"count by (version) (sluice_build_info{DAEMON})", "{{version}}"),
                ),
            ],
        ),
        (
            "Callers and configuration",
            [
                series(
                    "Callers: refused requests",
                    "reqps",
                    (rate("sluice_caller_refused_total", DAEMON, "caller"), "{{caller}}"),
                    about="By the limits of server.rate. Callers: server.auth.callers_file.",
                ),
                series(
                    "Callers: admitted requests",
                    "reqps",
                    (rate("sluice_caller_requests_total", DAEMON, "caller"), "{{caller}}"),
                    about="Compare with the requests that server.rate allows each caller.",
                ),
                series(
                    "Callers: tokens",
                    "short",
                    (rate("sluice_caller_tokens_total", DAEMON, "caller"), "{{caller}}"),
                    about="Per second. Compare with the tokens that server.rate allows each "
                    "caller.",
                ),
                series(
                    "Refused connections",
                    "reqps",
                    (rate("sluice_connections_refused_total", DAEMON, "pod, reason"),
                     "{{pod}} {{reason}}"),
                    about="No request is counted for them. Near the memory limit, new connections "
                    "are refused first.",
                ),
                series(
                    "Models whose last load failed",
                    "none",
                    (f"sum by (pod) (sluice_models_failed{DAEMON})", "{{pod}}"),
                    about="The log and `sluice doctor` have the reason.",
                ),
                series(
                    "Time until the certificate expires",
                    "s",
                    (
                        f"min by (pod) (sluice_certificate_expiry_timestamp_seconds{DAEMON})"
                        " - time()",
                        "{{pod}}",
                    ),
                    about="No data without TLS.",
                ),
                series(
                    "Changed options that need a restart",
                    "none",
                    (
                        f"count by (option) (sluice_config_needs_restart{DAEMON})",
                        "{{option}}",
                    ),
                    about="The number of replicas; no data if there is none.",
                ),
            ],
        ),
        (
            "Gateway for HTTP",
            [
                series(
                    "Gateway: answers by code",
                    "reqps",
                    (rate("sluice_gateway_requests_total", GATEWAY, "code"), "{{code}}"),
                    about="499: the caller went away.",
                    stacked=True,
                ),
                series(
                    "Gateway: latency",
                    "s",
                    *quantiles("sluice_gateway_request_duration_seconds", GATEWAY),
                    about="From the head of a request to the end of its answer; streams too.",
                ),
                series(
                    "Gateway: requests in progress",
                    "short",
                    (f"sum by (pod) (sluice_gateway_requests_in_flight{GATEWAY})", "{{pod}}"),
                ),
            ],
        ),
    ],
)
