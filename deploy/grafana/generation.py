"""First tokens and the pace of those after."""

from panels import Dashboard, histogram, series
from queries import MODEL, VARIABLES, mean, quantiles, rate, select

DASHBOARD = Dashboard(
    "sluice-generation",
    "Sluice / generation",
    "First tokens and the pace of those after.",
    VARIABLES,
    [
        (
            "First token",
            [
                series(
                    "Time to first token", "s", *quantiles("sluice_time_to_first_token_seconds"), width=12
                ),
                histogram(
                    "Time to first token, all requests", "s", "sluice_time_to_first_token_seconds", MODEL
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
                    "Time between tokens, all requests", "s", "sluice_inter_token_duration_seconds", MODEL
                ),
                series(
                    "Generating requests",
                    "ops",
                    (rate("sluice_time_to_first_token_seconds_count"), "first tokens/s"),
                ),
                series("Rows per step", "short", (mean("sluice_batch_rows"), "mean")),
                series(
                    "Useful tokens", "short", (rate("sluice_tokens_total", select(kind="useful")), "tokens/s")
                ),
            ],
        ),
    ],
)
