"""Compares low-rank adapters of a served model with the merged weights in numpy, in float64."""

import concurrent.futures
import json
import random
import shutil
import subprocess
import threading

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from conftest import ROOT, SLUICE, Daemon
from gateway import Gateway
from infer import ids_inputs, infer, text_inputs
from safetensors.numpy import load_file
from sluice_client import Client
from tiny_model import D, LAYERS, MLP, TinyModel, write_safetensors
from tritonclient.utils import InferenceServerException

SHAPES = {"self_attn.q_proj": (D, D), "self_attn.o_proj": (D, D), "mlp.up_proj": (MLP, D),
          "mlp.down_proj": (D, MLP)}


def write_adapter(folder, seed, rank, alpha):
    """Writes a folder as PEFT does, and returns the changes of the weights."""
    rng = np.random.default_rng(seed)
    tensors, changes = {}, {}
    for layer in range(LAYERS):
        for module, (out, width) in SHAPES.items():
            name = f"model.layers.{layer}.{module}"
            a = (rng.standard_normal((rank, width)) / np.sqrt(width)).astype(np.float32)
            b = (rng.standard_normal((out, rank)) / alpha).astype(np.float32)
            tensors[f"base_model.model.{name}.lora_A.weight"] = a
            tensors[f"base_model.model.{name}.lora_B.weight"] = b
            changes[f"{name}.weight"] = alpha / rank * (b.astype(np.float64) @ a)
    folder.mkdir(parents=True)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_dora": False,
                "target_modules": [name.rpartition(".")[2] for name in SHAPES]}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return changes


class Adapted(TinyModel):
    """The model with the changes of an adapter merged into its weights."""

    def __init__(self, base, changes):
        self.__dict__ = dict(base.__dict__)
        self.tensors = {name: tensor + changes.get(name, 0)
                        for name, tensor in base.tensors.items()}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Returns the base model and the models with adapters, by the names that requests give."""
    seed = random.randrange(2**32)
    print("seed", seed)
    base = TinyModel(tmp_path_factory.mktemp("adapters") / "lm", seed)
    return {"lm": base} | {
        f"lm:{name}": Adapted(base, write_adapter(base.directory / "adapters" / name, seed + i,
                                                  rank=1 + 3 * i, alpha=4 + i))
        for i, name in enumerate(["style", "law", "code.v2"])}


@pytest.fixture(scope="module")
def daemon_of_adapters(models):
    with Daemon(models=[("lm", models["lm"].directory)]) as daemon:
        yield daemon


def test_each_adapter_gives_the_logits_of_its_merged_weights(models, daemon_of_adapters):
    client = daemon_of_adapters.client()
    answers = {}
    for name, model in models.items():
        ids = [3, 1, 4, 1, 5]
        answers[name] = infer(client, ids_inputs([ids]), ["logits"], model=name,
                              max_tokens=0)["logits"][0]
        np.testing.assert_allclose(answers[name], model.logits(ids), rtol=0, atol=1e-4)
    assert len({answer.tobytes() for answer in answers.values()}) == len(models)


def test_an_answer_has_the_name_of_the_request(daemon_of_adapters):
    result = daemon_of_adapters.client().infer("lm:law", ids_inputs([[1, 2]]))
    assert result.get_response().model_name == "lm:law"


def test_a_name_with_an_adapter_is_ready_only_if_it_is_loaded(daemon_of_adapters):
    client = daemon_of_adapters.client()
    assert client.is_model_ready("lm:style") and not client.is_model_ready("lm:other")
    assert client.get_model_metadata("lm:style").name == "lm"


def test_unknown_adapter_is_not_found_and_the_error_lists_the_known_ones(daemon_of_adapters):
    with pytest.raises(InferenceServerException) as refused:
        infer(daemon_of_adapters.client(), ids_inputs([[1]]), model="lm:other")
    assert refused.value.status() == "StatusCode.NOT_FOUND"
    assert "model lm has no adapter 'other'; known: code.v2, law, style" in str(refused.value)


def test_adapters_are_loaded_and_unloaded_under_load_without_a_failed_call(
        models, daemon_of_adapters):
    name, changes = "lm:late", None
    folder = models["lm"].directory / "adapters" / "late"
    changes = write_adapter(folder, 77, rank=5, alpha=3)
    expected = Adapted(models["lm"], changes).logits([3, 1, 4])
    client = daemon_of_adapters.client()
    admin = grpcclient.InferenceServerClient(daemon_of_adapters.admin)
    stop, failures = threading.Event(), []

    def call_others():
        own = daemon_of_adapters.client()
        while not stop.is_set():
            for other in ("lm", "lm:style"):
                got = infer(own, ids_inputs([[3, 1, 4]]), ["logits"], model=other, max_tokens=0)
                if not np.allclose(got["logits"][0], models[other].logits([3, 1, 4]), atol=1e-4):
                    failures.append(other)

    caller = threading.Thread(target=call_others)
    caller.start()
    try:
        for _ in range(20):
            admin.load_model(name)
            got = infer(client, ids_inputs([[3, 1, 4]]), ["logits"], model=name, max_tokens=0)
            np.testing.assert_allclose(got["logits"][0], expected, rtol=0, atol=1e-4)
            listed = {each.name for each in client.get_model_repository_index().models}
            assert {"lm", "lm:style", name} <= listed
            admin.unload_model(name)
            assert not client.is_model_ready(name)
    finally:
        stop.set()
        caller.join()
    assert not failures


def test_evicted_adapters_are_loaded_again_for_the_requests_that_name_them(
        models, daemon_of_adapters, tmp_path, daemon):
    names = [name for name in models if ":" in name]
    size = daemon_of_adapters.metric("sluice_device_memory_bytes", state="adapters")
    config = tmp_path / "sluice.yaml"
    config.write_text(f"models:\n  - name: lm\n    path: {models['lm'].directory}\n"
                      f"    adapter_memory_bytes: {int(size) - 1}\n")
    server = daemon("--config", config, models=())
    failures = []

    def call(name):
        own = server.client()
        for _ in range(20):
            got = infer(own, ids_inputs([[3, 1, 4]]), ["logits"], model=name, max_tokens=0)
            if not np.allclose(got["logits"][0], models[name].logits([3, 1, 4]), atol=1e-4):
                failures.append(name)

    callers = [threading.Thread(target=call, args=(name,)) for name in [*names, "lm"]]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures
    client = server.client()
    listed = {each.name for each in client.get_model_repository_index().models}
    assert listed >= set(names) and all(client.is_model_ready(name) for name in names)
    assert server.metric("sluice_memory_limit_bytes", use="adapters") == int(size) - 1
    assert server.metric("sluice_device_memory_bytes", state="adapters") < size
    for name in names:
        own = {"adapter": name.partition(":")[2]}
        assert server.metric("sluice_adapter_requests_total", **own) == 20
        assert server.metric("sluice_adapter_tokens_total", **own) == 60
        assert server.metric("sluice_adapter_loads_total", **own) >= 1
    evictions = [value for (metric, _), value in server.metrics().items()
                 if metric == "sluice_adapter_evictions_total"]
    assert sum(evictions) >= 1
    # The series is read as the endpoint picker reads it.
    (labels, _), = [(dict(labels), value) for (metric, labels), value in server.metrics().items()
                    if metric == "sluice_lora_requests_info"]
    running = labels["running_lora_adapters"].split(",")
    assert 1 <= len(running) < len(names) and set(running) <= set(names)
    assert labels["waiting_lora_adapters"] == "" and int(labels["max_lora"]) >= len(running)


@pytest.fixture(scope="module")
def http(daemon_of_adapters, tmp_path_factory):
    """Returns a function that posts a body, by default with the admin token."""
    token = tmp_path_factory.mktemp("token") / "admin.token"
    token.write_text("s3cret\n")
    with Gateway(daemon_of_adapters, "--admin", daemon_of_adapters.admin,
                 "--admin-token-file", token) as gateway:
        yield lambda path, body, token="Bearer s3cret": gateway.post(
            path, body, **({"Authorization": token} if token else {}))


def test_vllms_paths_load_and_unload_an_adapter(models, daemon_of_adapters, http):
    folder = models["lm"].directory / "adapters" / "by_http"
    expected = Adapted(models["lm"], write_adapter(folder, 78, rank=3, alpha=2)).logits([3, 1])
    client = daemon_of_adapters.client()
    for name in ("by_http", "lm:by_http"):
        body = {"lora_name": name, "lora_path": str(folder)}
        answer = http("/v1/load_lora_adapter", body)
        assert answer.status == 200, answer.body
        assert answer.body.decode() == f"Success: LoRA adapter '{name}' added successfully."
        got = infer(client, ids_inputs([[3, 1]]), ["logits"], model="lm:by_http", max_tokens=0)
        np.testing.assert_allclose(got["logits"][0], expected, rtol=0, atol=1e-4)
        again = http("/v1/load_lora_adapter", body)
        assert again.status == 400 and "has already been loaded" in again.json["error"]["message"]
        assert http("/v1/load_lora_adapter", body | {"load_inplace": True}).status == 200
        answer = http("/v1/unload_lora_adapter", {"lora_name": name, "lora_int_id": 1})
        assert answer.status == 200
        assert answer.body.decode() == f"Success: LoRA adapter '{name}' removed successfully."
        assert not client.is_model_ready("lm:by_http")
        again = http("/v1/unload_lora_adapter", {"lora_name": name})
        assert again.status == 404 and "has no adapter 'by_http'" in again.json["error"]["message"]


@pytest.mark.parametrize("token", [None, "Bearer", "Bearer wrong", "s3cret", "bearer s3cret",
                                   "Bearer s3cret ", "Bearer s3cre", "Bearer s3cret2"])
def test_other_tokens_load_nothing_by_http(models, daemon_of_adapters, http, token):
    law = str(models["lm"].directory / "adapters" / "law")
    for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        body = {"lora_name": "lm:law"} | ({"lora_path": law} if "unload" not in path else {})
        # The HTTP library removes spaces at the end of a header.
        if token != "Bearer s3cret ":
            refused = http(path, body, token)
            assert refused.status == 401
            assert "--admin-token-file" in refused.json["error"]["message"]
    assert daemon_of_adapters.client().is_model_ready("lm:law")


def test_a_path_outside_of_the_folder_of_adapters_is_refused_with_the_accepted_one(
        models, http, tmp_path):
    adapters = models["lm"].directory / "adapters"
    write_adapter(tmp_path / "law", 3, rank=2, alpha=2)
    accepted = str((adapters / "law").resolve())
    for path in (tmp_path / "law", adapters / "style", adapters, adapters / "law" / "law",
                 adapters / "law" / ".." / "style", "law", "adapters/law", "/", "/no/such/law",
                 "https://example.org/law", f"{adapters}/law\0"):
        refused = http("/v1/load_lora_adapter", {"lora_name": "lm:law", "lora_path": str(path),
                                                 "load_inplace": True})
        assert refused.status == 400, path
        message = refused.json["error"]["message"]
        assert accepted in message or "parameter path: expected a string" in message, message
    for same in (adapters / "law", f"{adapters}/law/", adapters / "style" / ".." / "law"):
        answer = http("/v1/load_lora_adapter", {"lora_name": "lm:law", "lora_path": str(same),
                                                "load_inplace": True})
        assert answer.status == 200, answer.body


@pytest.mark.parametrize("body, status, message", [
    ({"lora_name": "law"}, 400, "lora_path is missing"),
    ({"lora_path": "/a"}, 400, "lora_name is missing"),
    ({"lora_name": "", "lora_path": "/a"}, 400, "lora_name is empty"),
    ({"lora_name": "new", "lora_path": ""}, 400, "lora_path is empty"),
    ({"lora_name": 3, "lora_path": "/a"}, 400, "lora_name"),
    ({"lora_name": "new", "lora_path": "/a", "load_inplace": 1}, 400, "load_inplace"),
    ({"lora_name": "new", "lora_path": "/a", "is_3d_lora_weight": True}, 400, "is_3d_lora_weight"),
    ({"lora_name": "new", "lora_path": "/a", "base_model_name": "lm"}, 400, "base_model_name"),
    ({"lora_name": "none:law", "lora_path": "/a"}, 404, "none"),
    ({"lora_name": "lm:new", "lora_path": "/a"}, 404, "is in the folder of adapters of lm"),
    ({"lora_name": "lm:../x", "lora_path": "/a"}, 400, "is not a valid model name"),
    (b"{", 400, "not JSON"),
])
def test_a_wrong_body_names_its_field(http, body, status, message):
    refused = http("/v1/load_lora_adapter", body)
    assert refused.status == status and message in refused.json["error"]["message"]


def test_without_an_admin_address_the_paths_are_not_found(daemon_of_adapters):
    with Gateway(daemon_of_adapters) as gateway:
        refused = gateway.post("/v1/unload_lora_adapter", {"lora_name": "law"})
        assert refused.status == 404
        assert "--admin HOST:PORT --admin-token-file FILE" in refused.json["error"]["message"]


def test_secured_admin_address_loads_adapters_only_with_the_admin_token(models, tmp_path):
    admin, other = "the-token-of-the-admin", "a-token-of-a-caller"
    (tmp_path / "callers").write_text(f"admin: token:{admin}\nalice: token:{other}\n")
    (tmp_path / "admin.token").write_text(admin)
    daemon = Daemon(
        "--server.auth.callers-file", str(tmp_path / "callers"), "--server.auth.anonymous",
        "false", "--server.admin.secured", "true", models=[("lm", models["lm"].directory)])
    law = {"lora_name": "lm:law"}
    calls = [("/v1/unload_lora_adapter", law),
             ("/v1/load_lora_adapter",
              law | {"lora_path": str(models["lm"].directory / "adapters" / "law")})]
    options = ("--admin", daemon.admin, "--admin-token-file", tmp_path / "admin.token")

    def is_ready():
        with Client(daemon.grpc, token=other) as client:
            return client.model_ready("lm:law")

    try:
        plain = grpcclient.InferenceServerClient(daemon.admin)
        for call in (plain.load_model, plain.unload_model):
            with pytest.raises(InferenceServerException) as refused:
                call("lm:law")
            assert refused.value.status() == "StatusCode.UNAUTHENTICATED"
        with Gateway(daemon, *options, "--admin-secured") as gateway:
            for path, body in calls:
                for headers in ({}, {"Authorization": f"Bearer {other}"}):
                    refused = gateway.post(path, body, **headers)
                    assert refused.status == 401, refused.body
                assert is_ready() == (path == calls[0][0])
                answer = gateway.post(path, body, Authorization=f"Bearer {admin}")
                assert answer.status == 200, answer.body
                assert is_ready() == (path == calls[1][0])
        with Gateway(daemon, *options) as gateway:  # which does not pass the token on
            for path, body in calls:
                assert gateway.post(path, body, Authorization=f"Bearer {admin}").status == 401
            assert is_ready()
    finally:
        daemon.stop()


def test_a_folder_that_is_not_supported_stops_the_start_by_name(models, tmp_path, daemon):
    base = TinyModel(tmp_path / "lm", 1)
    folder = base.directory / "adapters" / "dora"
    write_adapter(folder, 1, rank=2, alpha=2)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"use_dora": True}))
    with pytest.raises(Exception, match="adapter dora: adapter_config.json: use_dora is not"):
        daemon(models=[("lm", base.directory)])


GOLDENS = ROOT / "tests" / "goldens"
HEADS = {"topic": ("sequenceclassification", "scores", "label"),
         "entities": ("tokenclassification", "token_scores", "token_labels")}


def test_adapters_answer_with_classifiers_and_labels_of_their_own(tmp_path, daemon):
    base = tmp_path / "bert"
    shutil.copytree(GOLDENS / "families" / "bert_1", base)
    expected = {}
    for name, (task, _, _) in HEADS.items():
        folder = base / "adapters" / name
        shutil.copytree(GOLDENS / "adapter_heads" / f"bert_{task}_1", folder)
        expected[name] = load_file(folder / "expected.safetensors")
        labels = expected[name]["scores"].shape[1]
        names = {str(i): f"{name} {i}" for i in range(labels)}
        (folder / "config.json").write_text(json.dumps({"id2label": names}))
    server = daemon(models=[("m", base)])
    client = server.client()
    for name, (_, output, label) in HEADS.items():
        golden = expected[name]
        lengths = golden["lengths"]
        ids = np.split(golden["input_ids"], np.cumsum(lengths)[:-1])
        got = infer(client, ids_inputs(ids), model=f"m:{name}")
        scores = got[output]
        if name == "entities":
            scores = np.concatenate([row[:n] for row, n in zip(scores, lengths)])
        np.testing.assert_allclose(scores, golden["scores"], rtol=0, atol=1e-5)
        best = golden["scores"].argmax(axis=1)
        shown = got[label].ravel() if name == "topic" else np.concatenate(
            [row[:n] for row, n in zip(got[label], lengths)])
        assert [each.decode() for each in shown] == [f"{name} {i}" for i in best]
        metadata = client.get_model_metadata(f"m:{name}")
        assert output in {each.name for each in metadata.outputs}
        with pytest.raises(InferenceServerException, match="a classifier in place of the model"):
            infer(client, ids_inputs([[5]]), ["logits"], model=f"m:{name}")
    assert infer(client, ids_inputs([[5]]), ["logits"], model="m")["logits"].shape[0] == 1
    with pytest.raises(InferenceServerException, match='"scores" is unknown to this model'):
        infer(client, ids_inputs([[5]]), ["scores"], model="m")


TASKS = ["retrieval.query", "retrieval.passage", "text-matching"]
WORDS = ["<unk>", "<pad>", "<s>", "</s>", "Represent", "the", "it", "query", ":", "tort", "law"]


def ids_of(text):
    return [WORDS.index(word) for word in text.replace(":", " :").split()]


@pytest.fixture(scope="module")
def jina(tmp_path_factory):
    """Serves a golden model whose checkpoint has adapters for tasks, with a tokenizer of words."""
    folder = tmp_path_factory.mktemp("tasks") / "jina"
    shutil.copytree(GOLDENS / "families" / "jina_tasks_1", folder)
    (folder / "tokenizer.json").write_text(json.dumps({
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}]},
        "model": {"type": "WordLevel", "unk_token": WORDS[0],
                  "vocab": {word: i for i, word in enumerate(WORDS)}}}))
    with Daemon("--engine.batch.max-queue-delay", "20ms", models=[("jina", folder)]) as daemon:
        yield daemon


def vectors_of(daemon, inputs, model, **parameters):
    with daemon.client() as client:
        return infer(client, inputs, ["embedding"], model=model, **parameters)["embedding"]


def golden_rows():
    """Returns the ids of the rows of the golden model, and its embeddings by model name."""
    golden = load_file(GOLDENS / "families" / "jina_tasks_1" / "expected.safetensors")
    ends = np.cumsum(golden["lengths"])[:-1]
    states = {"jina": "states"} | {f"jina:{task}": f"states_{task}" for task in TASKS}
    return np.split(golden["input_ids"], ends), {
        name: np.stack([row.mean(axis=0) for row in np.split(golden[stored], ends)])
        for name, stored in states.items()}


def test_the_tasks_of_the_checkpoint_are_served_by_name(jina):
    ids, expected = golden_rows()
    client = jina.client()
    admin = grpcclient.InferenceServerClient(jina.admin)
    assert {each.name for each in client.get_model_repository_index().models} == set(expected)
    with Client(jina.grpc) as own:
        assert json.loads(own.metadata("jina").properties["task_adapters"]) == TASKS
    for name, vectors in expected.items():
        got = vectors_of(jina, ids_inputs(ids), name)
        np.testing.assert_allclose(got, vectors, rtol=0, atol=1e-5)
        if name == "jina":
            continue
        assert np.abs(got - expected["jina"]).max() > 1e-3
        admin.unload_model(name)
        assert not client.is_model_ready(name)
        admin.load_model(name)
        np.testing.assert_array_equal(vectors_of(jina, ids_inputs(ids), name), got)


def test_rows_of_several_tasks_in_one_batch_have_the_bits_of_each_alone(jina):
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    ids, expected = golden_rows()
    calls = [(name, row) for name in expected for row in ids] * 4
    draw.shuffle(calls)

    def ask(call):
        name, row = call
        return vectors_of(jina, ids_inputs([row]), name).tobytes()

    alone = list(map(ask, calls))
    batches = jina.metric("sluice_batch_rows_count")
    rows = jina.metric("sluice_batch_rows_sum")
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        assert list(pool.map(ask, calls)) == alone
    batches = jina.metric("sluice_batch_rows_count") - batches
    assert jina.metric("sluice_batch_rows_sum") - rows == len(calls)
    assert batches < len(calls), "no rows shared a batch, so nothing was tested"


@pytest.mark.parametrize("task, prompt", [
    ("retrieval.query", "Represent the query: "), ("retrieval.passage", "Represent it: "),
    ("text-matching", "")])
def test_a_task_puts_its_prompt_before_texts(jina, task, prompt):
    def from_ids(text, name=f"jina:{task}"):
        return vectors_of(jina, ids_inputs([ids_of(text)]), name)

    def from_text(name=f"jina:{task}", **parameters):
        return vectors_of(jina, text_inputs("the law"), name, **parameters)

    np.testing.assert_array_equal(from_text(), from_ids(f"{prompt}the law"))
    np.testing.assert_array_equal(from_text(prompt_name=""), from_ids("the law"))
    np.testing.assert_array_equal(from_text(prompt_name="retrieval.passage"),
                                  from_ids("Represent it: the law"))
    np.testing.assert_array_equal(from_text("jina"), from_ids("the law", "jina"))


def test_an_unknown_task_is_refused_with_the_list_of_tasks(jina):
    with pytest.raises(InferenceServerException) as refused:
        vectors_of(jina, text_inputs("law"), "jina:retrieval")
    assert refused.value.status() == "StatusCode.NOT_FOUND"
    assert refused.value.message() == (
        f"model jina has no adapter 'retrieval'; known: {', '.join(sorted(TASKS))}")


def test_rerank_embeds_queries_and_documents_by_their_tasks(jina):
    documents = ["the law", "a tort is the law", "law tort"]

    def cosines(of_query, of_document):
        with Client(jina.grpc) as client:
            query = np.asarray(client.embed(of_query, ["tort"], normalize=True))
            others = np.asarray(client.embed(of_document, documents, normalize=True))
        return (others @ query[0]).tolist()

    expected = cosines("jina:retrieval.query", "jina:retrieval.passage")
    same = cosines("jina:text-matching", "jina:text-matching")
    assert np.abs(np.subtract(expected, same)).max() > 1e-3, "the tasks differ"
    with Client(jina.grpc) as client, Gateway(jina) as gateway:
        for model, scores in (("jina", expected), ("jina:text-matching", same)):
            got = client.score_pairs(model, ["tort"], documents)
            np.testing.assert_allclose(list(got), scores, rtol=0, atol=1e-6)
            answer = gateway.post("/v1/rerank", {"model": model, "query": "tort",
                                                 "documents": documents})
            ranked = {each["index"]: each["relevance_score"] for each in answer.json["results"]}
            np.testing.assert_allclose([ranked[i] for i in range(3)], scores, rtol=0, atol=1e-6)
            printed = subprocess.run(
                [SLUICE, "rerank", "--server", jina.grpc, "--model", model, "--json", "tort",
                 *documents], capture_output=True, text=True, check=True).stdout
            lines = [json.loads(line) for line in printed.splitlines()]
            ranked = {each["document"]: each["score"] for each in lines}
            np.testing.assert_allclose([ranked[i] for i in range(3)], scores, rtol=0, atol=1e-5)


def test_fields_of_the_gateway_select_tasks(jina):
    with Gateway(jina) as gateway:
        def ask(model="jina", **fields):
            return gateway.post("/v1/embeddings", {"model": model, "input": "the law",
                                                   "normalize": False, **fields})

        def vector(model="jina", **fields):
            answer = ask(model, **fields).json
            assert answer["model"] == model
            return np.array([answer["data"][0]["embedding"]], np.float32)

        for task, kind in zip(TASKS, ("query", "document", None)):
            expected = vectors_of(jina, text_inputs("the law"), f"jina:{task}")
            same = [vector(f"jina:{task}"), vector(task=task), vector(f"jina:{task}", task=task)]
            if kind is not None:
                same += [vector(input_type=kind), vector(f"jina:{task}", input_type=kind)]
            for got in same:
                np.testing.assert_array_equal(got, expected)
        base = vectors_of(jina, text_inputs("the law"), "jina")
        np.testing.assert_array_equal(vector(input_type="clustering"), base)
        cohere = gateway.post("/v2/embed", {"model": "jina", "texts": ["the law"],
                                            "input_type": "search_query"}).json["embeddings"]
        expected = vectors_of(jina, text_inputs("the law"), "jina:retrieval.query")
        np.testing.assert_array_equal(np.array(cohere["float"], np.float32), expected)
        for refused, reason in (
                (ask(task="separation"), f"task is not one of {', '.join(TASKS)}"),
                (ask("jina:text-matching", task="retrieval.query"),
                 "task selects the adapter retrieval.query, and model names text-matching")):
            assert refused.status == 400 and reason in refused.json["error"]["message"]
