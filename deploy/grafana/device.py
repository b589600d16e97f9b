"""How busy the devices are, and the use of their memory."""

from panels import Dashboard, series
from queries import MODEL, VARIABLES, rate, select, useful_share

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
                        rate("sluice_device_busy_seconds_total", by="pod, device, model"),
                        "{{pod}}, {{device}}, {{model}}",
                    ),
                    about="Share of the time with a step of the model on the device.",
                ),
                series(
                    "Useful tokens",
                    "percentunit",
                    (useful_share("pod, model"), "{{pod}}, {{model}}"),
                    about="Over the last hour, as a share of the device's rate in full batches.",
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
