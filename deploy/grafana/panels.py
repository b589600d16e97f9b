"""Builds Grafana's dashboard JSON. Each function returns a panel; Dashboard lays them out.

A query is (expression, legend). Expressions use the variables $namespace, $model, $version, $pod
and $__rate_interval, which dashboards.py and Grafana define.
"""

import dataclasses
import json

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24  # Grafana's grid


def _targets(queries, **more):
    return [
        {
            "datasource": DATASOURCE,
            "expr": expression,
            "legendFormat": legend,
            "refId": chr(ord("A") + index),
            **more,
        }
        for index, (expression, legend) in enumerate(queries)
    ]


def _panel(kind, title, description, unit, queries, width, height, options, custom=None, **targets):
    defaults = {"unit": unit, "custom": custom or {}}
    if unit == "percentunit":
        defaults |= {"min": 0, "max": 1}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": _targets(queries, **targets),
        "gridPos": {"w": width, "h": height},
    }


def series(title, unit, *queries, about="", width=8, stacked=False):
    """Lines over time; stacked areas for the parts of a whole."""
    custom = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if stacked else {"fillOpacity": 5}
    legend = {"displayMode": "list", "placement": "bottom"}
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return _panel("timeseries", title, about, unit, queries, width, 8, options, custom)


def stat(title, unit, expression, about="", steps=((None, "text"),), decimals=None):
    """One number, coloured from each (lower bound, colour) of `steps` on; the first bound is
    None."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "graphMode": "area",
        "colorMode": "value",
    }
    panel = _panel("stat", title, about, unit, [(expression, "")], 4, 4, options)
    defaults = panel["fieldConfig"]["defaults"]
    defaults["color"] = {"mode": "thresholds"}
    defaults["thresholds"] = {
        "mode": "absolute",
        "steps": [{"value": bound, "color": color} for bound, color in steps],
    }
    if decimals is not None:
        defaults["decimals"] = decimals
    return panel


def histogram(title, unit, metric, selector, about="", width=12):
    """A Prometheus histogram as a heat map: boundaries upwards, time to the right."""
    query = f"sum by (le) (increase({metric}_bucket{selector}[$__rate_interval]))"
    options = {
        "calculate": False,
        "yAxis": {"unit": unit},
        "cellGap": 1,
        "color": _scale("Oranges"),
    }
    return _panel(
        "heatmap", title, about, "short", [(query, "{{le}}")], width, 8, options, format="heatmap"
    )


def heat_rows(title, unit, query, about="", width=24, low=0, high=1):
    """A heat map with one row per series, coloured by value from `low` (red) to `high` (green)."""
    color = _scale("RdYlGn", reverse=False) | {"min": low, "max": high}
    options = {
        "calculate": False,
        "rowsFrame": {"layout": "auto", "value": title},
        "cellValues": {"unit": unit},
        "color": color,
        "cellGap": 1,
        "showValue": "auto",
        "legend": {"show": True},
    }
    return _panel("heatmap", title, about, unit, [query], width, 10, options)


def table(title, by, *queries, about="", units=None, width=24):
    """The present values of several instant queries, one column each, joined on the label `by`."""
    panel = _panel(
        "table",
        title,
        about,
        "short",
        queries,
        width,
        10,
        {"showHeader": True},
        format="table",
        instant=True,
    )
    columns = {f"Value #{target['refId']}": target["legendFormat"] for target in panel["targets"]}
    panel["transformations"] = [
        {"id": "joinByField", "options": {"byField": by, "mode": "outer"}},
        {"id": "filterFieldsByName", "options": {"include": {"names": [by, *columns]}}},
        {"id": "organize", "options": {"renameByName": columns}},
    ]
    panel["fieldConfig"]["overrides"] = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "unit", "value": unit}],
        }
        for name, unit in (units or {}).items()
    ]
    return panel


def _scale(scheme, reverse=True):
    return {"mode": "scheme", "scheme": scheme, "steps": 64, "reverse": reverse}


def _query_variable(name, query, label):
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,  # with the time range
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


@dataclasses.dataclass
class Dashboard:
    """`rows` is a list of (title, panels); panels flow from left to right."""

    uid: str
    title: str
    description: str
    variables: dict  # name -> (label_values(...), label)
    rows: list

    def json(self):
        """The file's text; the same dashboard gives the same bytes."""
        datasource = {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
        }
        variables = [_query_variable(name, *rest) for name, rest in self.variables.items()]
        model = {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["sluice"],
            "schemaVersion": 39,
            "version": 1,
            "editable": False,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "browser",
            "graphTooltip": 1,
            "links": [
                {
                    "title": "Sluice",
                    "type": "dashboards",
                    "tags": ["sluice"],
                    "includeVars": True,
                    "keepTime": True,
                }
            ],
            "templating": {"list": [datasource, *variables]},
            "panels": self._layout(),
        }
        return json.dumps(model, indent=1, sort_keys=True) + "\n"

    def _layout(self):
        placed = []
        top = 0
        for title, panels in self.rows:
            row = {"type": "row", "title": title, "collapsed": False, "panels": []}
            placed.append(row | {"gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1}})
            top += 1
            left = line = 0
            for panel in panels:
                width, height = panel["gridPos"]["w"], panel["gridPos"]["h"]
                if left + width > COLUMNS:
                    left, top, line = 0, top + line, 0
                placed.append(panel | {"gridPos": {"x": left, "y": top, "w": width, "h": height}})
                left, line = left + width, max(line, height)
            top += line
        return [panel | {"id": index + 1} for index, panel in enumerate(placed)]
