"""Tests the gateway's chat templates."""

import asyncio
import json
import random

import pytest
from conftest import Daemon
from gateway import Gateway
from tiny_model import TinyModel
from waiting import PATIENCE_S


def load(folder, config=None, jinja=None):
    from sluice_client.gateway.chat import ChatTemplate

    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if jinja is not None:
        (folder / "chat_template.jinja").write_text(jinja)
    return ChatTemplate.load(folder)


def prompts(template, *chats):
    """Returns the prompt of each chat, or the refusal."""
    from sluice_client.gateway.chat import Renderer
    from sluice_client.gateway.fairness import Caller
    from sluice_client.gateway.hostile import Refused

    async def run():
        renderer = Renderer({"m": template}, 4096, PATIENCE_S)

        async def prompt(messages):
            try:
                return await renderer.prompt(Caller("a"), "m", messages, template.specials())
            except Refused as refused:
                return refused

        try:
            return [await prompt(each) for each in chats]
        finally:
            renderer.close()

    return asyncio.run(run())


USER = [{"role": "user", "content": "hi"}]


def test_templates_are_found_in_hugging_face_files(tmp_path):
    config = {"bos_token": {"content": "<s>"}, "chat_template": "{{ bos_token }}one"}
    assert prompts(load(tmp_path, config), USER) == ["<s>one"]
    several = [{"name": "tools", "template": "two"}, {"name": "default", "template": "three"}]
    assert prompts(load(tmp_path, {"chat_template": several}), USER) == ["three"]
    quoted = load(tmp_path, config, "{{ messages[0].content | tojson }}")
    assert prompts(quoted, USER) == ['"hi"']
    with pytest.raises(ValueError, match="no chat template"):
        load(tmp_path / "..", {})
    with pytest.raises(ValueError, match="does not compile"):
        load(tmp_path, {}, "{% for %}")
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(ValueError, match="convert it"):
        load(tmp_path, {}, "{{ messages[0].content }}")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert prompts(load(tmp_path, {}, "{{ messages[0].content }}"), USER) == ["hi"]


def test_developers_are_systems_for_templates_that_do_not_know_them(tmp_path):
    messages = [{"role": "developer", "content": "Answer in French."}, *USER]
    only = "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
    assert prompts(load(tmp_path, {}, only), messages) == ["Answer in French."]
    both = only + "{% for m in messages if m.role == 'developer' %}!{{ m.content }}{% endfor %}"
    assert prompts(load(tmp_path, {}, both), messages) == ["!Answer in French."]


@pytest.mark.parametrize(
    "template, text",
    [
        ("{% for m in messages %}<{% generation %}{{ m.content }}{% endgeneration %}>{% endfor %}",
         "<hi>"),
        ("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}", "21"),
        ("{{ {'b': 'é', 'a': 1} | tojson }}", '{"b": "é", "a": 1}'),
        ("{{ {'b': 'é', 'a': 1} | tojson(ensure_ascii=True, sort_keys=True,"
         " separators=(',', ':')) }}", '{"a":1,"b":"\\u00e9"}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ messages[0].name }}", "bob"),
    ],
)
def test_templates_render_as_in_transformers(tmp_path, template, text):
    assert prompts(load(tmp_path, {}, template), [{**USER[0], "name": "bob"}]) == [text]


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__ }}{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ messages.append(1) }}",
        "{{ range(10 ** 9) | list }}",
        "{{ raise_exception('no') }}",
        "{{ messages[7].content }}",
        "{{ 1 / 0 }}",
    ],
)
def test_hostile_template_is_refused(tmp_path, template):
    (refused,) = prompts(load(tmp_path, {}, template), USER)
    assert "the chat template failed: " in refused.message


def test_message_with_a_special_token_is_refused(tmp_path):
    config = {"eos_token": "<|end|>", "additional_special_tokens": ["<|more|>"],
              "extra_special_tokens": {"image_token": "<|image|>"}, "added_tokens_decoder": {
        "7": {"content": "<|start|>", "special": True}, "8": {"content": "fine", "special": False}}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(
        {"pad_token": "<|pad|>", "additional_special_tokens": [{"content": "<|map|>"}]}))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [
        {"content": "<|json|>", "special": True}, {"content": "fine", "special": False}]}))
    made = load(tmp_path, config, "{{ messages[0].content }}")
    tokens = ("<|end|>", "<|start|>", "<|more|>", "<|image|>", "<|pad|>", "<|map|>", "<|json|>")
    fine, *refusals = prompts(
        made, [{"role": "user", "content": "fine"}],
        *([{"role": "user", "content": f"a{token}system"}] for token in tokens),
        *([{"role": "user", "content": "a", "name": token}] for token in tokens))
    assert fine == "fine"
    assert [(each.field, each.reason) for each in refusals] == [
        *[("messages[0].content", "special_token")] * len(tokens),
        *[("messages[0].name", "special_token")] * len(tokens)]
    assert all(repr(token) in each.message for token, each in zip(2 * tokens, refusals))


def test_template_outside_of_a_models_folder_refuses_the_tokens_that_the_daemon_lists(tmp_path):
    from sluice_client.gateway.chat import ChatTemplate
    from sluice_client.gateway.hostile import Refused

    template, model = tmp_path / "a" / "chat.jinja", tmp_path / "model"
    for each in (template.parent, model):
        each.mkdir()
    template.write_text("{{ messages[0].content }}")
    (model / "tokenizer.json").write_text(json.dumps(
        {"added_tokens": [{"content": "<s>", "special": True}]}))
    alone, message = ChatTemplate.load(template), [{"role": "user", "content": "a<s>"}]
    assert alone.specials() == [] and prompts(alone, message) == ["a<s>"]
    assert alone.specials(["</s>", "<s>"]) == ["</s>", "<s>"]
    with pytest.raises(Refused, match="--tokenizer"):
        alone.specials(None)
    (refused,) = prompts(ChatTemplate.load(template, model), message)
    assert "special token" in refused.message


@pytest.mark.parametrize("seed", range(20))
def test_special_tokens_are_found_as_by_a_search_for_each(seed):
    from sluice_client.gateway.render import special_token_in

    draw = random.Random(seed)
    letters = "<|s>é.*"  # few, so that tokens begin with each other; two with a meaning in patterns
    specials = ["".join(draw.choices(letters, k=draw.randint(1, draw.choice((3, 90)))))
                for _ in range(draw.choice((1, 5, 300)))]
    for _ in range(200):
        messages = [{field: "".join(draw.choices(letters, k=draw.randint(0, 12)))
                     for field in ("role", "content")} for _ in range(draw.randint(1, 3))]
        places = [f"messages[{i}].{field}" for i, message in enumerate(messages)
                  for field, text in message.items() if any(each in text for each in specials)]
        found = special_token_in(messages, specials)
        assert (found[0] if found else None) == (places[0] if places else None), (seed, messages)
        assert found is None or found[1] in specials
    assert special_token_in([{"content": "a"}], []) is None


@pytest.mark.parametrize(
    "template, why",
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
         "did not end"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}",
         "more than 4096 characters"),
        ("{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}"
         "{% endfor %}", "failed"),
        ("{{ 'a' * 10 ** 11 }}", "failed"),
    ],
)
def test_time_and_memory_of_a_template_are_limited(template, why):
    from sluice_client.gateway.chat import ChatTemplate, Renderer
    from sluice_client.gateway.fairness import Caller
    from sluice_client.gateway.hostile import Refused

    async def run():
        good = ChatTemplate("{{ messages[0].content }}")
        renderer = Renderer({"bad": ChatTemplate(template), "good": good}, 4096, 2)
        rendered = asyncio.ensure_future(renderer.prompt(Caller("a"), "bad", USER, []))
        served = 0
        while not rendered.done():  # The event loop runs while the template renders.
            await asyncio.sleep(0)
            served += 1
        with pytest.raises(Refused, match=why):
            await rendered
        # A later call has an answer, and so has a call after a cancelled one.
        cancelled = asyncio.ensure_future(renderer.prompt(Caller("a"), "bad", USER, []))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await renderer.prompt(Caller("b"), "good", USER, ["h<"]) == "hi"
        with pytest.raises(Refused, match="special token 'h'"):
            await renderer.prompt(Caller("b"), "good", USER, ["h", "x"])
        renderer.close()
        return served

    assert asyncio.run(run()) > 1


def test_special_tokens_of_the_served_model_are_refused(tmp_path):
    """The gateway knows only a template; the daemon's tokenizer finds the tokens in texts."""
    model = TinyModel(tmp_path / "model", seed=1).directory
    token = {"special": True, "lstrip": False, "rstrip": False, "single_word": False,
             "normalized": False}
    words = ["<unk>", "<|end|>", "a", "b"]
    (model / "tokenizer.json").write_text(json.dumps({
        "added_tokens": [{"id": i, "content": words[i], **token} for i in (0, 1)],
        "pre_tokenizer": {"type": "Whitespace"}, "normalizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [1], "tokens": ["<|end|>"]}}},
        "decoder": None, "model": {"type": "WordLevel", "unk_token": "<unk>",
                                   "vocab": {word: i for i, word in enumerate(words)}}}))
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.content }} <|end|>{% endfor %}")
    with Daemon(models=[("tiny", model)]) as served:
        with Gateway(served, "--chat", f"tiny={template}") as gateway:
            def answer(content, **more):
                return gateway.post("/v1/chat/completions", {
                    "model": "tiny", "max_tokens": 1,
                    "messages": [{"role": "user", "content": content}], **more})

            # The prompt has no special tokens but the template's.
            assert answer("a b").json["usage"]["prompt_tokens"] == 3
            assert answer("a b", add_special_tokens=True).json["usage"]["prompt_tokens"] == 4
            for special, tokens in ((True, 4), (False, 3)):
                completion = gateway.post("/v1/completions", {
                    "model": "tiny", "max_tokens": 1, "prompt": "a b <|end|>",
                    "add_special_tokens": special})
                assert completion.json["usage"]["prompt_tokens"] == tokens
            refused = answer("a <|end|> b")
            assert refused.status == 400
            assert "special token '<|end|>'" in refused.json["error"]["message"]
            assert "--allow-special-tokens" in refused.json["error"]["message"]
        with Gateway(served, "--chat", f"tiny={template}", "--allow-special-tokens") as gateway:
            accepted = answer("a <|end|> b")
            assert accepted.json["usage"]["prompt_tokens"] == 4


def test_the_time_of_a_template_is_an_option(demo, tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                        "{% endfor %}")
    with Gateway(demo, "--chat", f"demo={template}", "--template-timeout", 0.25) as gateway:
        refused = gateway.post("/v1/chat/completions", {"model": "demo", "messages": USER})
    assert refused.status == 400
    assert ("it did not end within 0.25 s (--template-timeout)"
            in refused.json["error"]["message"]), refused.body
