"""Variables, selectors and PromQL that the dashboards share."""

# A series without the label namespace, as outside Kubernetes, is selected by "All".
NAMESPACE = 'namespace=~"$namespace"'
MODEL = f'{{job="sluice",{NAMESPACE},model=~"$model",version=~"$version",pod=~"$pod"}}'
DAEMON = f'{{job="sluice",{NAMESPACE},pod=~"$pod"}}'
# The recorded series of the chosen models, and of all models together.
RECORDED = f'{{{NAMESPACE},model=~"$model|"}}'
RANGE = "[$__rate_interval]"
# The window of the figures that rate buckets and the device, as in rules.yml.
HOUR = "[1h]"

VARIABLES = {
    "namespace": ('label_values(up{job="sluice"}, namespace)', "Namespace"),
    "model": (
        f'label_values(sluice_requests_total{{job="sluice",{NAMESPACE}}}, model)',
        "Model",
    ),
    "version": (
        f'label_values(sluice_requests_total{{job="sluice",{NAMESPACE},model=~"$model"}}, version)',
        "Version",
    ),
    "pod": (f'label_values(up{{job="sluice",{NAMESPACE}}}, pod)', "Pod"),
}


def select(**labels):
    """MODEL with more matchers: select(kind="useful")."""
    return MODEL[:-1] + "".join(f',{name}="{value}"' for name, value in labels.items()) + "}"


def rate(metric, selector=MODEL, by="", window=RANGE):
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{selector}{window}))"


def quantiles(metric, selector=MODEL):
    """Median, 90th and 99th percentile of a histogram."""
    by_boundary = rate(f"{metric}_bucket", selector, "le")
    return [(f"histogram_quantile({q}, {by_boundary})", f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)]


def ratio(part, whole):
    """Absent, not NaN, where there was nothing."""
    return f"{part} / ({whole} > 0)"


def mean(metric, by=""):
    """Mean observation of a histogram."""
    return ratio(rate(f"{metric}_sum", by=by), rate(f"{metric}_count", by=by))


def tokens_ratio(part, whole, metric="sluice_tokens_total", by=""):
    """Of two kinds of tokens over the last hour."""
    return ratio(*(rate(metric, select(kind=kind), by, HOUR) for kind in (part, whole)))


def busy(by=""):
    """The share of the last hour with a step on the device, the mean over the series."""
    of = f" by ({by})" if by else ""
    return f"avg{of} (rate(sluice_device_busy_seconds_total{MODEL}{HOUR}))"


def wasted():
    """The share of the steps' time in the last hour that computed rows without a useful token."""
    replica = "namespace, model, version, pod"
    computed, useful = (
        rate("sluice_tokens_total", select(kind=kind), replica, HOUR)
        for kind in ("computed", "useful")
    )
    selector = MODEL[:-1] + ',term=~"bucket_token|computed_token"}'
    cost = f"sum by ({replica}) (sluice_cost_law{selector})"
    return ratio(
        f"sum(({computed} - {useful}) * {cost})",
        rate("sluice_device_busy_seconds_total", window=HOUR),
    )


def useful_share(by=""):
    """Useful tokens over the last hour as a share of the devices' rate."""
    of = f" by ({by})" if by else ""
    return ratio(
        rate("sluice_tokens_total", select(kind="useful"), by, HOUR),
        f"sum{of} (sluice_device_tokens_per_second{MODEL})",
    )


# Thresholds: (from this value on, colour).
GOOD_HIGH = ((None, "red"), (0.7, "orange"), (0.85, "green"))
BAD_HIGH = ((None, "green"), (0.001, "orange"), (0.01, "red"))
