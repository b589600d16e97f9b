"""How busy the devices are, and the use of their memory."""

from panels import Dashboard, series
from queries import MODEL, VARIABLES, rate, select

DASHBOARD = Dashboard(
    "sluice-device",
    "Sluice / device",
    "How busy the devices are, and the use of their memory.",
    VARIABLES,
    [
        (
            "Work",
            [
                series(
                    "Busy",
                    "percentunit",
                    (
                        rate(
                            "sluice_stage_duration_seconds_sum",
                            select(stage="replay"),
                            "pod, device",
                        ),
                        "{{pod}}, {{device}}",
                    ),
                    about="Share of the time in which a step runs.",
                ),
                series("Steps", "ops", (rate("sluice_engine_steps_total", by="pod"), "{{pod}}")),
                series(
                    "Computed tokens",
                    "short",
                    (rate("sluice_tokens_total", select(kind="computed"), "pod"), "{{pod}}"),
                    about="Per second.",
                ),
            ],
        ),
        (
            "Memory",
            [
                series(
                    "Device memory",
                    "bytes",
                    (
                        f"sum by (pod, state) (sluice_device_memory_bytes{MODEL})",
                        "{{state}}, {{pod}}",
                    ),
                    stacked=True,
                    width=12,
                ),
                series(
                    "Memory per bucket",
                    "bytes",
                    (f"max by (bucket) (sluice_bucket_memory_bytes{MODEL})", "{{bucket}}"),
                    width=12,
                ),
            ],
        ),
    ],
)
