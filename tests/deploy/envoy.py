"""Starts Envoy with the committed configuration on local ports."""

import re

import yaml

from processes import DEPLOY, Process, free_port, get, tool

CONFIG = DEPLOY / "envoy" / "envoy.yaml"


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


class Envoy(Process):
    """An Envoy in front of replicas on the ports `replicas`.

    `text` is a configuration. Its first listener is for callers, its second serves statistics, and
    its clusters are the replicas and the admin interface. `change` edits the parsed configuration.
    """

    def __init__(self, folder, replicas, text=None, change=lambda config: None,
                 options=()):
        self.port, operations, admin = free_port(), free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.operations, self.admin = (f"127.0.0.1:{each}" for each in (operations, admin))
        config = yaml.safe_load(text or CONFIG.read_text())
        config["admin"]["address"] = address(admin)
        resources = config["static_resources"]
        for listener, port in zip(resources["listeners"], (self.port, operations), strict=True):
            listener["address"] = address(port)
        cluster, administration = resources["clusters"]
        cluster.pop("cluster_type", None)
        cluster["type"] = "STATIC"
        for each, ports in ((cluster, replicas), (administration, [admin])):
            each["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
                {"endpoint": {"address": address(port)}} for port in ports
            ]
        change(config)
        path = folder / f"envoy-{self.port}.yaml"
        path.write_text(yaml.safe_dump(config))
        command = [tool("envoy"), "-c", path, "--concurrency", 1, "-l", "warning"]
        super().__init__([*command, "--use-dynamic-base-id", *options], path.with_suffix(".log"))
        self.wait_ready(lambda: get(self.admin, "/ready") is not None)

    def healthy(self):
        """Returns the number of healthy replicas."""
        found = re.findall(
            r"^sluice::\S+::health_flags::(\S+)$", get(self.admin, "/clusters") or "", re.M
        )
        return found.count("healthy")

    def in_flight(self, replica):
        """Returns the number of unanswered calls that Envoy has sent to `replica`."""
        found = re.search(
            rf"^sluice::{re.escape(replica)}::rq_active::(\d+)$", get(self.admin, "/clusters"), re.M
        )
        assert found, f"no replica {replica}"
        return int(found.group(1))

    def statistic(self, name):
        found = re.search(rf"^{re.escape(name)}: (\d+)$", get(self.admin, "/stats"), re.M)
        assert found, f"no statistic {name}"
        return int(found.group(1))
