"""Compares the status page in a real browser with /metrics of the same daemon."""

import json
import random
import shutil
import subprocess
import threading
import urllib.request

import pytest
from browser import DESKTOP, PHONE, Browser
from conftest import BUILD, DEMO, SLUICE
from infer import ids_inputs, infer
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S, wait_until

DEVICES = {"desktop": DESKTOP, "phone": PHONE}
# The counters on the page, each with its sample on /metrics.
COUNTERS = {
    "ok": ("sluice_requests_total", {"code": "OK"}),
    "steps": ("sluice_engine_steps_total", {}),
    "kv_evicted": ("sluice_kv_pages_evicted_total", {}),
    "preemptions": ("sluice_preemptions_total", {}),
    "ladder_reviews": ("sluice_ladder_reviews_total", {}),
    "ladder_added": ("sluice_ladder_changes_total", {"kind": "added"}),
}
# The gauges on the page. Their values are constant while the daemon has no requests.
GAUGES = {
    "requests_waiting": ("sluice_requests_waiting", {}),
    "requests_running": ("sluice_requests_running", {}),
    "sequences_running": ("sluice_sequences_running", {}),
    "sequences_waiting": ("sluice_sequences_waiting", {}),
    "queued_tokens": ("sluice_queued_tokens", {}),
    "kv_held": ("sluice_kv_pages", {"state": "held"}),
    "kv_idle": ("sluice_kv_pages", {"state": "idle"}),
    "kv_free": ("sluice_kv_pages", {"state": "free"}),
}


class Load:
    """Sends scoring and generation requests from two threads while its body runs."""

    def __init__(self, daemon):
        self._daemon = daemon
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(seed, tokens))
                         for seed, tokens in ((1, 0), (2, 12))]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, seed, max_tokens):
        draw = random.Random(seed)
        with self._daemon.client() as client:
            while not self._stop.is_set():
                rows = [[256] + [draw.randrange(256) for _ in range(draw.randint(3, 60))]
                        for _ in range(draw.randint(1, 4))]
                infer(client, ids_inputs(rows), max_tokens=max_tokens)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


def number(text):
    return int(text.replace(",", ""))


def figures(browser):
    """Returns the text of each named figure on the page, from one snapshot."""
    return browser.value("Object.fromEntries([...document.querySelectorAll('[data-figure]')]"
                         ".map(e => [e.dataset.figure, e.textContent]))")


def bucket_rows(browser):
    """Returns {bucket: [the cells of its row]}."""
    return browser.value("Object.fromEntries([...document.querySelectorAll('[data-bucket]')]"
                         ".map(r => [r.dataset.bucket, [...r.cells].map(c => c.textContent)]))")


def metric(samples, name, labels):
    return sum(value for (sample, pairs), value in samples.items()
               if sample == name and set(labels.items()) <= set(pairs))


def figure_is(name, value):
    return f"document.querySelector('[data-figure={name}]')?.textContent === '{value:,}'"


def open_page(browser, daemon, device):
    browser.show(f"http://{daemon.http}/", DEVICES[device])
    browser.until("document.querySelectorAll('.tile').length > 0")


def keep_screenshot(browser, name):
    """Saves a screenshot for manual inspection."""
    folder = BUILD / "screenshots"
    folder.mkdir(exist_ok=True)
    browser.screenshot(folder / f"{name}.png")


@pytest.mark.parametrize("device", DEVICES)
def test_the_page_agrees_with_metrics(daemon, browser, device):
    served = daemon("--engine.ladder.review.interval", "0")
    with Load(served):
        wait_until(lambda: served.metric("sluice_requests_total") >= 20)
        before = served.metrics()
        open_page(browser, served, device)
        shown = figures(browser)
        after = served.metrics()
        for name, sample in COUNTERS.items():
            assert metric(before, *sample) <= number(shown[name]) <= metric(after, *sample), name
        # Rates and charts appear after the second snapshot.
        browser.until("document.querySelector('[data-figure=tokens_rate]').textContent !== '–'")
        keep_screenshot(browser, f"status_{device}")
    assert subprocess.run([SLUICE, "review", "--admin", served.admin], capture_output=True,
                          timeout=PATIENCE_S).returncode == 0
    quiet = served.metrics()
    for name in ("ok", "steps", "ladder_reviews"):
        browser.until(figure_is(name, int(metric(quiet, *COUNTERS[name]))))
    shown = figures(browser)
    for name, sample in (COUNTERS | GAUGES).items():
        assert number(shown[name]) == metric(quiet, *sample), name
    check_buckets(browser, quiet)
    assert number(shown["history_batches"]) == metric(
        quiet, "sluice_bucket_batches_total", {})
    assert browser.value("document.body.innerText").count("adopted") == 1
    assert browser.overflow() <= 0
    assert browser.errors == []


def check_buckets(browser, samples):
    rows = bucket_rows(browser)
    labels = {
        dict(pairs)["bucket"] for name, pairs in samples if name == "sluice_bucket_batches_total"
    }
    assert set(rows) == labels
    for label, cells in rows.items():
        batches = metric(samples, "sluice_bucket_batches_total", {"bucket": label})
        assert number(cells[1]) == batches
        useful, computed, capacity = (
            metric(samples, "sluice_bucket_tokens_total", {"bucket": label, "kind": kind})
            for kind in ("useful", "computed", "capacity"))
        hits = metric(samples, "sluice_bucket_batches_total", {"bucket": label, "result": "hit"})
        for cell, part, whole in ((3, useful, capacity), (4, useful, computed), (6, hits, batches)):
            expected = f"{100 * part / whole:.1f} %" if batches else "–"
            assert cells[cell] == expected, (label, cell)


def test_the_colours_follow_the_system_setting(daemon, browser):
    served = daemon()
    paper = []
    for dark in (False, True):
        browser.show(f"http://{served.http}/", DESKTOP, dark=dark)
        browser.until("document.querySelectorAll('.tile').length > 0")
        colour = browser.value("getComputedStyle(document.body).backgroundColor")
        paper.append(sum(map(int, colour[4:-1].split(","))))
    assert paper[0] > 600 and paper[1] < 150


def test_a_button_chooses_one_of_several_models(daemon, browser):
    served = daemon(models=(("demo", DEMO), ("other", DEMO)))
    open_page(browser, served, "phone")
    buttons = "[...document.querySelectorAll('#models button')]"
    assert browser.value(f"{buttons}.map(b => b.textContent)") == ["demo version 1",
                                                                   "other version 1"]
    with served.client() as client:
        infer(client, ids_inputs([[256, 65]]), max_tokens=0, model="other")
    browser.value(f"{buttons}[1].click()")
    browser.until(figure_is("ok", 1))
    assert browser.value(f"{buttons}.map(b => b.getAttribute('aria-pressed'))") == ["false", "true"]
    assert browser.overflow() <= 0
    assert browser.errors == []


def test_text_from_the_daemon_is_escaped(demo, browser):
    """The page escapes hostile names, although the configuration also refuses them."""
    open_page(browser, demo, "phone")
    with demo.client() as client:
        infer(client, ids_inputs([[256, 65]]), max_tokens=0)
    with urllib.request.urlopen(f"http://{demo.http}/status.json", timeout=PATIENCE_S) as answer:
        status = json.load(answer)
    hostile = "<img src=x onerror='document.title=1'>\"&amp;</script>" + "long" * 40
    spoil(status, hostile)
    shown = browser.value(f"(s => {{ remember(s); show(s); return document.body.innerText; }})"
                          f"({json.dumps(status)})")
    assert shown.count(hostile) > 5
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.value("document.title") == "Sluice"
    assert browser.errors == []


@pytest.mark.parametrize("state", [{"in_ladder": True, "ready": False}, {"in_ladder": False}],
                         ids=["being_prepared", "withdrawn"])
def test_state_of_a_bucket_fits_a_phone(demo, browser, state):
    open_page(browser, demo, "phone")
    with demo.client() as client:
        infer(client, ids_inputs([[256, 65]]), max_tokens=0)
    with urllib.request.urlopen(f"http://{demo.http}/status.json", timeout=PATIENCE_S) as answer:
        status = json.load(answer)
    for bucket in status["models"][0]["buckets"]:
        bucket.update(state, bucket="262144x1024p", batches=123456789, cost=0.123)
    browser.value(f"(s => {{ remember(s); show(s); }})({json.dumps(status)})")
    assert browser.overflow() <= 0


def spoil(value, text):
    """Replaces every string in `value` by `text`."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        if isinstance(each, (dict, list)):
            spoil(each, text)
        elif isinstance(each, str):
            value[key] = text


def test_the_page_reports_that_the_daemon_has_ended(daemon, browser):
    served = daemon()
    open_page(browser, served, "desktop")
    assert browser.value("document.getElementById('phase').textContent") == "serving"
    served.stop()
    browser.until("document.getElementById('phase').textContent === 'no answer'")


def test_injected_scripts_do_not_run(demo, browser):
    open_page(browser, demo, "desktop")
    browser.value("document.body.append(Object.assign(document.createElement('script'),"
                  "{textContent: 'document.title = 1'}))")
    assert browser.value("document.title") == "Sluice"
    assert any("Content Security Policy" in error for error in browser.errors)


def test_the_page_names_models_whose_load_failed(daemon, browser, tmp_path):
    shutil.copytree(DEMO, tmp_path / "models" / "good" / "1")
    (tmp_path / "models" / "bad" / "1").mkdir(parents=True)
    served = daemon("--model-repository", str(tmp_path / "models"), models=())
    open_page(browser, served, "desktop")
    problem = "document.getElementById('problem').textContent"
    browser.until(f"{problem}.startsWith('The last load failed: bad version 1.')")


def test_the_page_shows_refusals_by_reason_and_the_goodput(daemon, browser):
    served = daemon()
    with served.client() as client:
        infer(client, ids_inputs([[256, 1, 2]]), max_tokens=0)
        for _ in range(3):
            with pytest.raises(InferenceServerException):
                infer(client, ids_inputs([[256, 1, 2]]), max_tokens=0, k_that_is_unknown=1)
    open_page(browser, served, "desktop")
    browser.until(figure_is("refused", 3))
    assert figures(browser)["goodput"] == "100.0 %"
    tile = "document.querySelector('[data-figure=refused]').parentElement.textContent"
    assert "parameter 3" in browser.value(tile)
