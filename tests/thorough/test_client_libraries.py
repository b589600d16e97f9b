"""Runs client libraries of other projects against the gateway, each in an environment of its own.

The answers must have the same bits as the Python client's answers, as far as a library keeps them.
"""

import json
import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from conftest import DEMO, Daemon  # noqa: E402
from environments import Environment  # noqa: E402
from gateway import TEMPLATE, Gateway  # noqa: E402
from sentence_models import SENTENCES, lay  # noqa: E402
from sluice_client import Client  # noqa: E402
from waiting import PATIENCE_S  # noqa: E402

TEXTS = ["a b c", "no more", "d"]
QUERY = "a c"
# Values of a library that holds them as decimal text of a double, or computes on.
CLOSE = {"rtol": 1e-6, "atol": 1e-7}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    dense = lay(tmp_path_factory.mktemp("models") / "dense", "dense")
    started = Daemon(models=[("dense", dense), ("cross_1", SENTENCES / "cross_1"),
                             ("cross_3", SENTENCES / "cross_3"), ("demo", DEMO)])
    yield started.grpc
    started.stop()


@pytest.fixture(scope="module")
def served(daemon):
    with Client(daemon) as client:
        yield client


@pytest.fixture(scope="module")
def gateway(daemon, tmp_path_factory):
    template = tmp_path_factory.mktemp("chat") / "chat.jinja"
    template.write_text(TEMPLATE)
    with Gateway(daemon, "--default-model", "dense", "--chat", f"demo={template}",
                 "--tokenizer", f"demo={DEMO}") as started:
        yield f"http://{started.address}"


def run(library, program, gateway, *arguments, **variables):
    """Runs a program of a library. Its first argument is the gateway's address."""
    return Environment(library).run(f"import json, sys\naddress, *texts = sys.argv[1:]\n{program}",
                                    gateway, *arguments, timeout=PATIENCE_S, **variables)


def assert_same_bits(vectors, expected):
    np.testing.assert_array_equal(np.float32(vectors), np.asarray(expected))


OPENAI = """
import asyncio, openai
settings = {"base_url": address + "/v1", "api_key": "none", "max_retries": 0}

async def concurrent():
    async with openai.AsyncOpenAI(**settings) as client:
        answers = await asyncio.gather(*(
            client.embeddings.create(model="dense", input=text) for text in texts))
        return [answer.data[0].embedding for answer in answers]

with openai.OpenAI(**settings) as client:
    def embed(**options):
        answer = client.embeddings.create(model="dense", input=texts, **options)
        return [each.embedding for each in answer.data]

    question = [{"role": "user", "content": "In the beginning"}]
    chat = {"model": "demo", "messages": question, "max_completion_tokens": 8, "temperature": 0}
    whole = client.chat.completions.create(**chat)
    parts = client.chat.completions.create(**chat, stream=True)
    try:
        client.embeddings.create(model="none", input="a")
    except openai.NotFoundError as error:
        missing = error.code
    print(json.dumps({
        "base64": embed(), "float": embed(encoding_format="float"),
        "concurrent": asyncio.run(concurrent()),
        "models": [each.id for each in client.models.list()],
        "chat": [whole.choices[0].message.content,
                 "".join(each.choices[0].delta.content or "" for each in parts if each.choices)],
        "missing": missing,
    }))
"""


def test_openai_embeds_and_chats(gateway, served):
    made = run("openai", OPENAI, gateway, *TEXTS)
    for name in ("base64", "float", "concurrent"):
        assert_same_bits(made[name], served.embed("dense", TEXTS))
    assert set(made["models"]) == {"dense", "cross_1", "cross_3", "demo"}
    prompt = "user: In the beginning\nassistant:"
    expected = served.generate("demo", prompt, max_tokens=8).text
    assert made["chat"] == [expected, expected]
    assert made["missing"] == "model_not_found"


# Without the setting, LangChain divides texts into ids of OpenAI's vocabulary, which it downloads.
# A vocabulary of bytes takes its place.
LANGCHAIN = """
import tiktoken
from langchain_openai import OpenAIEmbeddings
tiktoken.encoding_for_model = lambda name: tiktoken.Encoding(
    name, pat_str=".+", mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={})
checks, *texts = texts
embeddings = OpenAIEmbeddings(model="dense", base_url=address + "/v1", api_key="none",
                              **json.loads(checks))
try:
    print(json.dumps([embeddings.embed_documents(texts), embeddings.embed_query(texts[0])]))
except Exception as error:
    print(json.dumps(str(error)))
"""


def test_langchain_embeds_texts(gateway, served):
    documents, query = run("langchain", LANGCHAIN, gateway,
                           '{"check_embedding_ctx_length": false}', *TEXTS)
    expected = np.asarray(served.embed("dense", TEXTS))
    assert_same_bits(documents, expected)
    assert_same_bits(query, expected[0])


def test_ids_that_langchain_sends_by_default_are_refused(gateway):
    assert "check_embedding_ctx_length=False" in run("langchain", LANGCHAIN, gateway, "{}", *TEXTS)


LLAMA_INDEX = """
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
embeddings = OpenAILikeEmbedding(model_name="dense", api_base=address + "/v1", api_key="none",
                                 embed_batch_size=2)
print(json.dumps([embeddings.get_text_embedding_batch(texts),
                  embeddings.get_query_embedding(texts[0])]))
"""


def test_llama_index_embeds_texts(gateway, served):
    documents, query = run("llama_index", LLAMA_INDEX, gateway, *TEXTS)
    expected = np.asarray(served.embed("dense", TEXTS))
    assert_same_bits(documents, expected)
    assert_same_bits(query, expected[0])


HAYSTACK = """
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
settings = {"api_key": Secret.from_token("none"), "api_base_url": address + "/v1"}
documents = OpenAIDocumentEmbedder(model="dense", **settings, progress_bar=False).run(
    [Document(content=text) for text in texts])["documents"]
query = OpenAITextEmbedder(model="dense", **settings).run(texts[0])["embedding"]
chat = OpenAIChatGenerator(model="demo", **settings, generation_kwargs={
    "max_completion_tokens": 8, "temperature": 0})
reply = chat.run([ChatMessage.from_user("In the beginning")])["replies"][0].text
print(json.dumps([[each.embedding for each in documents], query, reply]))
"""


def test_haystack_embeds_documents_and_chats(gateway, served):
    documents, query, reply = run("haystack", HAYSTACK, gateway, *TEXTS,
                                  HAYSTACK_TELEMETRY_ENABLED="False")
    expected = np.asarray(served.embed("dense", TEXTS))
    assert_same_bits(documents, expected)
    assert_same_bits(query, expected[0])
    prompt = "user: In the beginning\nassistant:"
    assert reply == served.generate("demo", prompt, max_tokens=8).text


LITELLM = """
import litellm
of_tei, query, *texts = texts
settings = {"api_base": address + "/v1", "api_key": "none"}
embedded = litellm.embedding(model="openai/dense", input=texts, **settings)
chat = litellm.completion(
    model="openai/demo", messages=[{"role": "user", "content": "In the beginning"}],
    max_tokens=8, temperature=0, **settings)

def rerank(model, base, **options):
    answer = litellm.rerank(model=model, query=query, documents=texts, api_base=base,
                            api_key="none", **options)
    return [[each["index"], each["relevance_score"]] for each in answer.results]

print(json.dumps({
    "vectors": [each["embedding"] for each in embedded.data],
    "chat": chat.choices[0].message.content,
    "ranks": {
        "vllm": rerank("hosted_vllm/cross_1", address),
        "cohere": rerank("cohere/cross_1", address),
        "jina": rerank("jina_ai/cross_1", address + "/v1"),
        "tei": rerank("huggingface/cross_1", of_tei),  # which names no model
    },
}))
"""


def ranking(served, activation=None):
    ranked = served.rerank("cross_1", QUERY, TEXTS, activation=activation)
    return [[each.document, each.score] for each in ranked]


def test_litellm_embeds_chats_and_reranks(daemon, gateway, served):
    with Gateway(daemon, "--default-model", "cross_1") as reranker:
        made = run("litellm", LITELLM, gateway, f"http://{reranker.address}", QUERY, *TEXTS,
                   LITELLM_LOCAL_MODEL_COST_MAP="True")
    assert_same_bits(made["vectors"], served.embed("dense", TEXTS))
    prompt = "user: In the beginning\nassistant:"
    assert made["chat"] == served.generate("demo", prompt, max_tokens=8).text
    for name, ranked in made["ranks"].items():
        expected = ranking(served, "sigmoid" if name == "tei" else None)
        np.testing.assert_allclose(ranked, expected, err_msg=name, **CLOSE)


RERANKERS = """
from rerankers import Reranker
query, *texts = texts

def rank(provider, path):
    ranker = Reranker("cross_1", model_type=provider, api_key="none", url=address + path)
    return [[each.doc_id, each.score] for each in ranker.rank(query, texts).results]

print(json.dumps({"cohere": rank("cohere", "/v1/rerank"), "jina": rank("jina", "/v1/rerank"),
                  "tei": rank("text-embeddings-inference", "/rerank")}))
"""


def test_rerankers_ranks_documents(gateway, served):
    for name, ranked in run("rerankers", RERANKERS, gateway, QUERY, *TEXTS).items():
        expected = ranking(served, "sigmoid" if name == "tei" else None)
        np.testing.assert_allclose(ranked, expected, err_msg=name, **CLOSE)


HUB = """
from huggingface_hub import InferenceClient
client = InferenceClient(model=address)
print(json.dumps({
    "vectors": client.feature_extraction(texts, normalize=False).tolist(),
    "query": client.feature_extraction(texts[0], normalize=True, prompt_name="query").tolist(),
    "cosines": client.sentence_similarity(texts[0], other_sentences=texts),
}))
"""


def test_inference_client_of_the_hub_calls_the_paths_of_tei(gateway, served):
    made = run("huggingface_hub", HUB, gateway, *TEXTS)
    assert_same_bits(made["vectors"], served.embed("dense", TEXTS, normalize=False))
    assert_same_bits(made["query"], served.embed("dense", TEXTS[:1], normalize=True,
                                                 prompt_name="query"))
    unit = np.asarray(served.embed("dense", TEXTS, normalize=True), np.float64)
    np.testing.assert_allclose(made["cosines"], unit @ unit[0], **CLOSE)


CLASSIFY = """
from huggingface_hub import InferenceClient
# The hub's own API answers with a list of lists, so that with TEI only the best label is left.
best = InferenceClient(model=address).text_classification(texts[0])
print(json.dumps([best.label, best.score]))
"""


def test_inference_client_of_the_hub_classifies(daemon, served):
    with Gateway(daemon, "--default-model", "cross_3") as started:
        label, score = run("huggingface_hub", CLASSIFY, f"http://{started.address}", *TEXTS)
    (expected,) = served.classify("cross_3", TEXTS[:1], activation="softmax")
    labels = json.loads((SENTENCES / "cross_3" / "config.json").read_text())["id2label"]
    assert label == labels[str(expected.label)]
    np.testing.assert_allclose(score, max(expected.scores), **CLOSE)
