"""Tests that answers have the same bits with and without 63 other clients; checks counters."""

import concurrent.futures

import numpy as np
from infer import ids_inputs, infer
from waiting import PATIENCE_S

CLIENTS = 64
SEED = 20240607


def make_requests():
    random = np.random.default_rng(SEED)
    for _ in range(CLIENTS):
        rows = [[256, *random.integers(32, 127, random.integers(0, 200))]
                for _ in range(random.integers(1, 4))]
        parameters = {"max_tokens": int(random.integers(1, 8))}
        if random.random() < 0.5:
            parameters |= {"temperature": "0.8", "top_k": 20, "seed": int(random.integers(1 << 30))}
        yield rows, parameters


def bits(array):
    """Returns an array's content; the raw bytes of an object array would be addresses."""
    return array.tolist() if array.dtype == np.object_ else array.tobytes()


def same(one, other):
    return one.keys() == other.keys() and all(bits(one[name]) == bits(other[name]) for name in one)


def ask(server, request, wanted):
    """Returns the answer to one of make_requests(), on a new connection."""
    rows, parameters = request
    with server.client() as client:
        return infer(client, ids_inputs(rows), wanted, **parameters)


def test_64_concurrent_clients_get_the_same_bits_as_one(daemon):
    """cpu.poison fills memory that must not be read with NaN before each replay."""
    server = daemon("--cpu.poison", "true", "--engine.batch.max-queue-delay", "5ms")
    requests = list(make_requests())
    wanted = ["output_ids", "sequence_length", "logprobs", "logits", "prompt_logprobs",
              "xsa_proj_frac", "finish_reason"]

    alone = [ask(server, request, wanted) for request in requests]
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        crowd = list(pool.map(lambda request: ask(server, request, wanted), requests))
    assert all(np.isfinite(answer["logits"]).all() for answer in alone)
    different = [i for i in range(CLIENTS) if not same(alone[i], crowd[i])]
    assert not different, f"seed {SEED}: requests {different} depend on the other requests"

    assert server.metric("sluice_admitted_total") == 2 * CLIENTS
    assert server.metric("sluice_requests_total", code="OK") == 2 * CLIENTS
    batches = server.metric("sluice_batch_rows_count")
    rows = server.metric("sluice_batch_rows_sum")
    assert rows > 1.5 * batches, "too few requests were batched, so nothing was tested"


def test_client_and_metrics_agree_on_the_outcomes(daemon):
    """The answered, cancelled and expired requests add up to the admitted requests."""
    server = daemon()
    outcomes = {"ok": 0, "expired": 0, "cancelled": 0, "refused": 0, "unreachable": 0}

    def ask(i):
        with server.client() as client:
            kind = i % 4
            inputs = ids_inputs([[256, *b"And the "]])
            if kind == 0:
                infer(client, inputs, max_tokens=4)
                return "ok"
            if kind == 1:  # It expires, or is refused because it would expire.
                try:
                    infer(client, inputs, max_tokens=240, timeout=2_000)
                    return "ok"
                except Exception as error:
                    return {"StatusCode.DEADLINE_EXCEEDED": "expired",
                            "StatusCode.RESOURCE_EXHAUSTED": "unreachable"}[error.status()]
            if kind == 2:
                done = concurrent.futures.Future()
                call = client.async_infer(
                    "demo",
                    inputs,
                    lambda result, error: done.set_result(error),
                    parameters={"max_tokens": 240},
                )
                call.cancel()
                return "cancelled" if done.result(PATIENCE_S) else "ok"
            try:
                infer(client, inputs, top_k=-1)
            except Exception:
                return "refused"

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for outcome in pool.map(ask, range(160)):
            outcomes[outcome] += 1
    assert outcomes["refused"] == 40 and outcomes["expired"] + outcomes["unreachable"] > 0
    # A cancelled call ends at once for the client and slightly later in the daemon, but before the
    # daemon answers a later request.
    with server.client() as client:
        infer(client, ids_inputs([[256]]))
    outcomes["ok"] += 1

    ended = {code: server.metric("sluice_requests_total", code=code)
             for code in ("OK", "CANCELLED", "DEADLINE_EXCEEDED")}
    # A cancelled call may already have been answered, or may never have been sent.
    assert ended["OK"] >= outcomes["ok"]
    assert ended["OK"] + ended["CANCELLED"] <= outcomes["ok"] + outcomes["cancelled"]
    # A request whose deadline passes before it is queued counts as rejected, not as admitted.
    late = server.metric("sluice_rejected_total", reason="deadline")
    assert ended["DEADLINE_EXCEEDED"] + late == outcomes["expired"]
    assert server.metric("sluice_rejected_total", reason="deadline_unreachable") == \
        outcomes["unreachable"]
    assert server.metric("sluice_admitted_total") == server.metric("sluice_requests_total")
