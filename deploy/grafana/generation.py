"""First tokens, the pace of those after, and the pages that hold their keys and values."""

from panels import Dashboard, histogram, series
from queries import MODEL, VARIABLES, mean, quantiles, rate, ratio, select

DASHBOARD = Dashboard(
    "sluice-generation",
    "Sluice / generation",
    "First tokens, the pace of those after, and the pages that hold their keys and values.",
    VARIABLES,
    [
        (
            "First token",
            [
                series(
                    "Time to first token",
                    "s",
                    *quantiles("sluice_time_to_first_token_seconds"),
                    width=12,
                ),
                histogram(
                    "Time to first token, all requests",
                    "s",
                    "sluice_time_to_first_token_seconds",
                    MODEL,
                ),
            ],
        ),
        (
            "Tokens after the first",
            [
                series(
                    "Time between tokens",
                    "s",
                    *quantiles("sluice_inter_token_duration_seconds"),
                    width=12,
                    about="Mean of each request.",
                ),
                histogram(
                    "Time between tokens, all requests",
                    "s",
                    "sluice_inter_token_duration_seconds",
                    MODEL,
                ),
                series(
                    "Generating requests",
                    "ops",
                    (rate("sluice_time_to_first_token_seconds_count"), "first tokens/s"),
                ),
                series("Rows per step", "short", (mean("sluice_batch_rows"), "mean")),
                series(
                    "Useful tokens",
                    "short",
                    (rate("sluice_tokens_total", select(kind="useful")), "tokens/s"),
                ),
            ],
        ),
        (
            "Keys and values",
            [
                series(
                    "KV pages",
                    "short",
                    (f"sum by (state) (sluice_kv_pages{MODEL})", "{{state}}"),
                    about="Idle pages are kept for prompts with the same beginning, and taken "
                          "when others need them.",
                    stacked=True,
                    width=12,
                ),
                series(
                    "Preemptions",
                    "ops",
                    (rate("sluice_preemptions_total", by="pod"), "{{pod}}"),
                    about="Sequences that lost their pages and are computed again later.",
                    width=12,
                ),
                series(
                    "Prompt tokens found in pages",
                    "percentunit",
                    (
                        ratio(
                            rate("sluice_prefix_tokens_total", select(result="hit")),
                            rate("sluice_prefix_tokens_total"),
                        ),
                        "hit",
                    ),
                    about="They are not computed again.",
                    width=12,
                ),
                series(
                    "Drafted tokens",
                    "ops",
                    (rate("sluice_draft_tokens_total", by="result"), "{{result}}"),
                    about="Tokens a second that models on a CPU tried.",
                    stacked=True,
                    width=12,
                ),
                series(
                    "Sequences",
                    "short",
                    (f"sum(sluice_sequences_running{MODEL})", "running"),
                    (f"sum(sluice_sequences_waiting{MODEL})", "waiting"),
                    about="Rows of requests; running ones hold pages.",
                    width=12,
                ),
                series(
                    "Idle pages taken",
                    "ops",
                    (rate("sluice_kv_pages_evicted_total", by="pod"), "{{pod}}"),
                    width=12,
                ),
            ],
        ),
        (
            "Exclusive self attention",
            [
                series(
                    "Own value in attention's output",
                    "short",
                    (f"avg by (model, layer) (sluice_xsa_cos_sim{MODEL})", "{{model}}, {{layer}}"),
                    about="xsa_cos_sim by layer: the length of the output along the token's own "
                          "value. Mean of the requests that asked for it.",
                ),
                series(
                    "Share of the output",
                    "percentunit",
                    (
                        f"avg by (model, layer) (sluice_xsa_proj_frac{MODEL})",
                        "{{model}}, {{layer}}",
                    ),
                    about="xsa_proj_frac by layer: the same as a share of the output's length.",
                ),
                series(
                    "Diagnosed positions",
                    "short",
                    (rate("sluice_xsa_positions_total", by="model"), "{{model}}"),
                    about="Per second. The means are of all positions so far.",
                ),
            ],
        ),
    ],
)
