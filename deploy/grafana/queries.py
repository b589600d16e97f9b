"""Variables, selectors and PromQL that the dashboards share."""

MODEL = '{job="sluice",model=~"$model",version=~"$version",pod=~"$pod"}'
DAEMON = '{job="sluice",pod=~"$pod"}'
RANGE = "[$__rate_interval]"

VARIABLES = {
    "model": ('label_values(sluice_requests_total{job="sluice"}, model)', "Model"),
    "version": (
        'label_values(sluice_requests_total{job="sluice",model=~"$model"}, version)',
        "Version",
    ),
    "pod": ('label_values(up{job="sluice"}, pod)', "Pod"),
}


def select(**labels):
    """MODEL with more matchers: select(kind="useful")."""
    return MODEL[:-1] + "".join(f',{name}="{value}"' for name, value in labels.items()) + "}"


def rate(metric, selector=MODEL, by=""):
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{selector}{RANGE}))"


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


def tokens_ratio(part, whole):
    """Of two kinds of sluice_tokens_total."""
    return ratio(*(rate("sluice_tokens_total", select(kind=kind)) for kind in (part, whole)))


# Thresholds: (from this value on, colour).
GOOD_HIGH = ((None, "red"), (0.7, "orange"), (0.85, "green"))
BAD_HIGH = ((None, "green"), (0.001, "orange"), (0.01, "red"))
