"""How well the ladder fits the traffic, and its costs."""

from panels import Dashboard, heat_rows, histogram, series, stat, table
from queries import (
    BAD_HIGH,
    GOOD_HIGH,
    HOUR,
    MODEL,
    RANGE,
    VARIABLES,
    busy,
    rate,
    ratio,
    select,
    tokens_ratio,
    useful_share,
    wasted,
)

TOKENS = "sluice_bucket_tokens_total"
BATCHES = "sluice_bucket_batches_total"

DASHBOARD = Dashboard(
    "sluice-buckets",
    "Sluice / buckets",
    "How well the ladder fits the traffic, and its costs.",
    VARIABLES,
    [
        (
            "At a glance",
            [
                stat(
                    "Bucket fill",
                    "percentunit",
                    tokens_ratio("useful", "bucket"),
                    "Useful / bucket tokens, last hour.",
                    GOOD_HIGH,
                ),
                stat(
                    "Executed efficiency",
                    "percentunit",
                    tokens_ratio("useful", "computed"),
                    "Useful / computed tokens, last hour.",
                    GOOD_HIGH,
                ),
                stat(
                    "Hit ratio",
                    "percentunit",
                    ratio(
                        rate("sluice_plan_lookups_total", select(result="hit"), window=HOUR),
                        rate("sluice_plan_lookups_total", window=HOUR),
                    ),
                    "Batches that ran in their best bucket, last hour.",
                    GOOD_HIGH,
                ),
                stat(
                    "Device busy",
                    "percentunit",
                    busy(),
                    "Share of the last hour with a step on the device.",
                ),
                stat(
                    "Wasted",
                    "percentunit",
                    wasted(),
                    "Share of the busy time spent on rows without a useful token, last hour.",
                    BAD_HIGH,
                ),
                stat(
                    "Buckets",
                    "none",
                    f"max(count by (pod, model) (sluice_bucket_ready{MODEL} == 1))",
                    "Prepared, in the replica with most.",
                ),
            ],
        ),
        (
            "Efficiency",
            [
                heat_rows(
                    "Bucket fill per bucket",
                    "percentunit",
                    (tokens_ratio("useful", "capacity", TOKENS, "bucket"), "{{bucket}}"),
                    "Over the last hour. Red rows with many batches waste most.",
                ),
                heat_rows(
                    "Batches per bucket",
                    "ops",
                    (rate(BATCHES, by="bucket"), "{{bucket}}"),
                    high=None,
                ),
                table(
                    "Present ladder",
                    "bucket",
                    (f"max by (bucket) (sluice_bucket_capacity_tokens{MODEL})", "tokens"),
                    (f"max by (bucket) (sluice_bucket_capacity_rows{MODEL})", "rows"),
                    (f"sum by (bucket) (increase({BATCHES}{MODEL}{HOUR}))", "batches"),
                    (tokens_ratio("useful", "capacity", TOKENS, "bucket"), "bucket fill"),
                    (
                        ratio(
                            rate("sluice_bucket_sequences_total", by="bucket", window=HOUR),
                            f"{rate(BATCHES, by='bucket', window=HOUR)} * on (bucket) "
                            f"max by (bucket) (sluice_bucket_capacity_rows{MODEL})",
                        ),
                        "row fill",
                    ),
                    (
                        tokens_ratio("useful", "computed", TOKENS, "bucket"),
                        "executed efficiency",
                    ),
                    (
                        ratio(
                            rate(BATCHES, select(result="hit"), "bucket", HOUR),
                            rate(BATCHES, by="bucket", window=HOUR),
                        ),
                        "hit ratio",
                    ),
                    (f"avg by (bucket) (sluice_bucket_cost_seconds{MODEL})", "cost"),
                    (f"max by (bucket) (sluice_bucket_memory_bytes{MODEL})", "memory"),
                    about="Batches and shares are over the last hour.",
                    units={
                        "bucket fill": "percentunit",
                        "row fill": "percentunit",
                        "executed efficiency": "percentunit",
                        "hit ratio": "percentunit",
                        "cost": "s",
                        "memory": "bytes",
                    },
                ),
            ],
        ),
        (
            "Padding",
            [
                series(
                    "Tokens",
                    "short",
                    (rate("sluice_tokens_total", by="kind"), "{{kind}}"),
                    about="Per second. Between useful and bucket lies the padding.",
                ),
                histogram("Batch tokens", "short", "sluice_batch_tokens", MODEL, width=8),
                histogram("Batch rows", "short", "sluice_batch_rows", MODEL, width=8),
                series(
                    "Arrivals",
                    "short",
                    (f"sum(sluice_arrival_sequences_per_second{MODEL})", "sequences/s"),
                    (f"sum(sluice_arrival_tokens_per_second{MODEL})", "tokens/s"),
                    about="Decayed, as the reviews of the ladder see them.",
                ),
                series(
                    "Entropy",
                    "short",
                    (f"max by (pod) (sluice_shape_entropy_bits{MODEL})", "{{pod}} batches"),
                    (f"max by (pod) (sluice_length_entropy_bits{MODEL})", "{{pod}} lengths"),
                    about="Bits; of the batches' useful tokens, and of the lengths that arrive.",
                ),
            ],
        ),
        (
            "Plans",
            [
                series(
                    "Hits and misses",
                    "ops",
                    (
                        rate("sluice_plan_lookups_total", by="result, reason"),
                        "{{result}} {{reason}}",
                    ),
                    stacked=True,
                ),
                series(
                    "Ladder changes",
                    "short",
                    (
                        f"sum by (kind) (increase(sluice_ladder_changes_total{MODEL}{RANGE}))",
                        "{{kind}}",
                    ),
                    (f"sum(increase(sluice_ladder_evictions_total{MODEL}{RANGE}))", "evicted"),
                ),
                series(
                    "Reviews",
                    "ops",
                    (rate("sluice_ladder_reviews_total", by="pod"), "{{pod}}"),
                    about="Of the ladder, adopted or not.",
                ),
                series(
                    "Plans prepared",
                    "ops",
                    (rate("sluice_plan_captures_total", by="result"), "{{result}}"),
                ),
                series(
                    "Time to prepare a plan",
                    "s",
                    (
                        ratio(
                            f"sum by (pod) (sluice_plan_capture_seconds_sum{MODEL})",
                            f"sum by (pod) (sluice_plan_capture_seconds_count{MODEL})",
                        ),
                        "{{pod}}",
                    ),
                    about="Mean since the start; plans are seldom prepared.",
                ),
                series(
                    "Misses per bucket",
                    "ops",
                    (
                        rate(BATCHES, select(result="miss"), "bucket, reason"),
                        "{{bucket}} {{reason}}",
                    ),
                    about="Batches that ran in the bucket in place of a better one.",
                ),
                series(
                    "Memory overhead",
                    "percentunit",
                    (f"max by (pod) (sluice_memory_overhead{MODEL})", "{{pod}}"),
                    about="Activations of the buckets over exact sizes, since the start.",
                ),
                series(
                    "Memory of the plans",
                    "bytes",
                    (f"sum by (pod) (sluice_plan_memory_bytes{MODEL})", "{{pod}}"),
                ),
            ],
        ),
        (
            "Cost",
            [
                series(
                    "Cost per bucket",
                    "s",
                    (f"avg by (bucket) (sluice_bucket_cost_seconds{MODEL})", "{{bucket}}"),
                    width=12,
                    about="Decayed mean of a replay.",
                ),
                series(
                    "Mean step per bucket",
                    "s",
                    (
                        ratio(
                            rate("sluice_bucket_replay_seconds_sum", by="bucket", window=HOUR),
                            rate("sluice_bucket_replay_seconds_count", by="bucket", window=HOUR),
                        ),
                        "{{bucket}}",
                    ),
                    width=12,
                    about="Mean time on the device over the last hour.",
                ),
                histogram(
                    "Step times of all buckets", "s", "sluice_bucket_replay_seconds", MODEL
                ),
                series(
                    "Cost law",
                    "s",
                    (f"avg by (term) (sluice_cost_law{MODEL})", "{{term}}"),
                    width=12,
                    about="Seconds of a step per unit of each term, as measured.",
                ),
            ],
        ),
    ],
)
