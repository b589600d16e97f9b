"""Tests that the dashboards are current, fit Grafana's grid and are distinct."""

import itertools
import json
import re

import pytest

import expressions
import generate


def test_the_committed_json_equals_the_generated_json():
    for each in generate.ALL:
        path = generate.path_of(each)
        assert (
            path.read_text() == each.json()
        ), f"{path.name} is stale: run deploy/grafana/generate.py"
    assert {generate.path_of(each) for each in generate.ALL} == set(expressions.DASHBOARDS)


def test_the_four_dashboards_have_distinct_titles_and_ids():
    assert (
        len({each.uid for each in generate.ALL}) == len({each.title for each in generate.ALL}) == 4
    )


@pytest.fixture(params=generate.ALL, ids=lambda each: each.uid)
def model(request):
    return json.loads(request.param.json())


def test_panels_fit_the_grid_and_do_not_overlap(model):
    boxes = [panel["gridPos"] for panel in model["panels"]]
    for box in boxes:
        assert 0 <= box["x"] and box["x"] + box["w"] <= 24 and box["h"] > 0
    for one, other in itertools.combinations(boxes, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


def test_panels_have_ids_titles_and_the_chosen_datasource(model):
    panels = model["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["targets"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_every_dashboard_has_the_same_variables(model):
    names = [variable["name"] for variable in model["templating"]["list"]]
    assert names == ["datasource", "namespace", "model", "version", "pod"]


def test_every_query_selects_the_namespace(model):
    """One set of dashboards shows all namespaces, and each panel the chosen ones."""
    for panel in model["panels"]:
        for target in panel.get("targets", []):
            selectors = re.findall(r"\{([^}]*)\}", target["expr"])
            assert selectors, target["expr"]
            for selector in selectors:
                assert 'namespace=~"$namespace"' in selector, target["expr"]
    for variable in model["templating"]["list"]:
        if variable["type"] == "query" and variable["name"] != "namespace":
            assert 'namespace=~"$namespace"' in variable["query"]["query"]
