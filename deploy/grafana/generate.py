#!/usr/bin/env python3
"""Writes dashboards/*.json. Run it after a change; a test compares the two."""

import pathlib

import buckets
import device
import generation
import overview

ALL = tuple(each.DASHBOARD for each in (overview, buckets, generation, device))


def path_of(dashboard):
    return (
        pathlib.Path(__file__).parent
        / "dashboards"
        / f"{dashboard.uid.removeprefix('sluice-')}.json"
    )


if __name__ == "__main__":
    for each in ALL:
        path_of(each).write_text(each.json())
