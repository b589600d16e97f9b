"""Imported by every Python source in which tools/plant.py plants faults. See planted.h."""

import os


def planted(number: int) -> bool:
    """Returns whether the run has fault `number`, and records that the run reaches its place."""
    reached = os.environ.get("SLUICE_REACHED")
    if reached:
        with open(reached, "r+b") as marks:
            marks.seek(number)
            marks.write(b"\1")
    return os.environ.get("SLUICE_PLANTED") == str(number)
