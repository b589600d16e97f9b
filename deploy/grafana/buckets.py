"""How well the ladder fits the traffic, and its costs."""

from panels import Dashboard, heat_rows, histogram, series, stat, table
from queries import GOOD_HIGH, MODEL, RANGE, VARIABLES, rate, ratio, select, tokens_ratio

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
                    "Useful / bucket tokens.",
                    GOOD_HIGH,
                ),
                stat(
                    "Executed efficiency",
                    "percentunit",
                    tokens_ratio("useful", "computed"),
                    "Useful / computed tokens.",
                    GOOD_HIGH,
                ),
                stat(
                    "Hit ratio",
                    "percentunit",
                    ratio(
                        rate("sluice_plan_lookups_total", select(result="hit")),
                        rate("sluice_plan_lookups_total"),
                    ),
                    "Batches that ran in their best bucket.",
                    GOOD_HIGH,
                ),
                stat(
                    "Shape entropy",
                    "short",
                    f"max(sluice_shape_entropy_bits{MODEL})",
                    "Bits; of the batches' useful tokens.",
                    decimals=1,
                ),
                stat(
                    "Memory overhead",
                    "percentunit",
                    f"max(sluice_memory_overhead{MODEL})",
                    "Of the buckets over exact sizes.",
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
                    (f"avg by (bucket) (sluice_bucket_fill{MODEL})", "{{bucket}}"),
                    "Over all batches of the bucket so far. Red rows with many batches waste most.",
                ),
                heat_rows(
                    "Batches per bucket",
                    "ops",
                    (rate("sluice_bucket_batches_total", by="bucket"), "{{bucket}}"),
                    high=None,
                ),
                table(
                    "Present ladder",
                    "bucket",
                    (f"max by (bucket) (sluice_bucket_capacity_tokens{MODEL})", "tokens"),
                    (f"max by (bucket) (sluice_bucket_capacity_rows{MODEL})", "rows"),
                    (f"sum by (bucket) (sluice_bucket_batches_total{MODEL})", "batches"),
                    (
                        f"avg by (bucket) (sluice_bucket_fill{MODEL})",
                        "bucket fill",
                    ),
                    (
                        f"avg by (bucket) (sluice_bucket_row_fill{MODEL})",
                        "row fill",
                    ),
                    (
                        f"avg by (bucket) (sluice_bucket_executed_efficiency{MODEL})",
                        "executed efficiency",
                    ),
                    (f"avg by (bucket) (sluice_bucket_hit_ratio{MODEL})", "hit ratio"),
                    (f"avg by (bucket) (sluice_bucket_cost_seconds{MODEL})", "cost"),
                    (f"max by (bucket) (sluice_bucket_memory_bytes{MODEL})", "memory"),
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
                    about="Mean since the start.",
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
