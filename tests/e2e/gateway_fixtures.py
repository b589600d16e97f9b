"""Fixtures: a gateway for the demo daemon, and clients of the gateway."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai
import pytest
from conftest import DEMO
from gateway import TEMPLATE, Gateway


@pytest.fixture(scope="module")
def page():
    """The address of a page with another origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>A page</title><link rel=icon href=data:,>")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    file = tmp_path_factory.mktemp("chat") / "chat.jinja"
    file.write_text(TEMPLATE)
    return file


@pytest.fixture(scope="module")
def gateway(demo, template, page):
    with Gateway(demo, "--chat", f"demo={template}", "--tokenizer", f"demo={DEMO}",
                 "--allow-origin", page, "--max-body-bytes", 200_000) as started:
        yield started


@pytest.fixture(scope="module")
def client(gateway):
    with openai.OpenAI(base_url=f"http://{gateway.address}/v1", api_key="none",
                       max_retries=0) as made:
        yield made
