"""Compares the memory in the manifests with the memory limits of a daemon with their options."""

import re
import subprocess

import pytest
import yaml

from manifests import SCALED, config_map, container, overlay, the
from processes import DEMO, PATIENCE_S, SLUICED, free_port


def limit(name):
    pod = container(the("Deployment", overlay(name), "sluice"), "sluiced")
    memory = pod["resources"]["limits"]["memory"]
    assert memory == pod["resources"]["requests"]["memory"]
    return re.fullmatch(r"(\d+[MG]i)", memory).group(1) + "B"


@pytest.mark.parametrize("name", SCALED)
def test_the_memory_of_a_pod_fits_the_plan(name, tmp_path):
    options = yaml.safe_load(config_map(overlay(name), "sluice")["sluice.yaml"])
    options.setdefault("server", {}).setdefault("memory", {})["limit_bytes"] = limit(name)
    server = options["server"]
    server.setdefault("grpc", {})["address"] = f"127.0.0.1:{free_port()}"
    server.setdefault("metrics", {})["address"] = ""
    server["admin"] = {"address": ""}
    server["grpc"].pop("health_address", None)
    for section in ("tls", "auth"):
        server.pop(section, None)
    options["models"] = [{"name": "demo", "path": str(DEMO)}]
    options.pop("model_repository", None)
    options.pop("device", None)
    options.get("engine", {}).pop("history", None)
    options.get("engine", {}).get("ladder", {}).pop("file", None)
    path = tmp_path / "sluice.yaml"
    path.write_text(yaml.safe_dump(options))
    daemon = subprocess.Popen([SLUICED, "--config", path], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    printed = ""
    for line in daemon.stdout:  # The limits are logged shortly after this line.
        printed += line
        if "gRPC on port" in line or '"grpc_port"' in line:
            daemon.terminate()
    daemon.wait(PATIENCE_S)
    plan = re.search(r"memory limits.*?(\d+\.\d) MiB of (\d+\.\d) MiB", printed)
    assert plan, printed
    assert float(plan[1]) <= float(plan[2])
