"""Makes the tokenizer goldens: small tokenizers of every kind, and their results.

The libraries that define the formats train them on corpus.txt, then encode texts and decode tokens.
Needs `tokenizers` and `sentencepiece`. Run it in this folder; the result is committed.
"""

import base64
import io
import json
import pathlib
import random

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors, trainers

from texts import LINES, RAW, TEXTS

HERE = pathlib.Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
RULES = {"ﬁ": "fi", "ﬂ": "fl", "①": "1", "　": " ", "Ａ": "A", "Ｂ": "B", "e\u0301": "é", "½": "1/2",
         "…": "...", "\t": " ", "\u200b": "", "ü": "ue", "㌀": "アパート", "👍🏽": "👍"}


def gpt2():
    it = Tokenizer(models.BPE())
    it.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    it.decoder = decoders.ByteLevel()
    it.post_processor = processors.ByteLevel(trim_offsets=False)
    it.train_from_iterator(
        LINES,
        trainers.BpeTrainer(
            vocab_size=500,
            special_tokens=["<|end|>"],
            initial_alphabet=pre.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return it


def roberta():
    it = Tokenizer(models.BPE())
    it.pre_tokenizer = pre.ByteLevel(add_prefix_space=True)
    it.decoder = decoders.ByteLevel()
    it.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<s>", "</s>", "<unk>", "<pad>"],
        initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False))
    it.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    it.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return it


def llama3():
    it = Tokenizer(models.BPE(ignore_merges=True))
    it.pre_tokenizer = pre.Sequence([pre.Split(Regex(LLAMA3), "isolated"),
                                     pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    it.decoder = decoders.ByteLevel()
    it.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=520, special_tokens=["<s>", "<|end|>"],
        initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False))
    it.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])])
    return it


def llama2():
    """A tokenizer converted from SentencePiece: one piece, with bytes for unknown characters."""
    it = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    it.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE())
    trained.normalizer = it.normalizer
    trained.pre_tokenizer = pre.Split("▁", "merged_with_next")
    trained.train_from_iterator(LINES[:12], trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, show_progress=False))
    state, model = json.loads(it.to_str()), json.loads(trained.to_str())["model"]
    state["model"]["vocab"], state["model"]["merges"] = model["vocab"], model["merges"]
    it = Tokenizer.from_str(json.dumps(state))
    it.add_special_tokens(["<unk>", "<s>", "</s>"])
    it.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    it.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return it


def llama_new():
    """Llama's newer form, which adds a space only at the beginning of the text."""
    it = Tokenizer.from_str(llama2().to_str())
    it.normalizer = None
    it.pre_tokenizer = pre.Metaspace(prepend_scheme="first", split=False)
    it.add_tokens([AddedToken("NEW", single_word=True, normalized=False)])
    return it


def bert(lowercase):
    it = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    it.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    it.pre_tokenizer = pre.BertPreTokenizer()
    it.train_from_iterator(
        LINES,
        trainers.WordPieceTrainer(
            vocab_size=620,
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            show_progress=False,
        ),
    )
    it.decoder = decoders.WordPiece(cleanup=lowercase)
    it.post_processor = (processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)) if lowercase else
                         processors.TemplateProcessing(single="[CLS] $A [SEP]",
                                                       special_tokens=[("[CLS]", 2), ("[SEP]", 3)]))
    return it


def charsmap():
    """Writes RULES as SentencePiece's table and returns its path."""
    path = HERE / "rules.tsv"
    path.write_text(
        "".join(
            " ".join(f"{ord(c):X}" for c in old)
            + "\t"
            + " ".join(f"{ord(c):X}" for c in new)
            + "\n"
            for old, new in RULES.items()
        )
    )
    return path


def piece_model(name, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    (HERE / f"{name}.model").write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def normalizer_of(processor):
    """Returns the bytes of precompiled_charsmap, field 2 of field 3 of the model."""
    def fields(message):
        at = 0
        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = message[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(message):
            tag = varint()
            if tag & 7 == 0:
                yield tag >> 3, varint()
            else:
                size = {1: 8, 5: 4}.get(tag & 7) or varint()
                yield tag >> 3, message[at:at + size]
                at += size
    spec = dict(fields(processor.serialized_model_proto()))[3]
    return dict(fields(spec))[2]


def xlm(table):
    it = Tokenizer(models.Unigram())
    state = json.loads(it.to_str())
    state["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    it = Tokenizer.from_str(json.dumps(state))
    it.pre_tokenizer = pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()])
    it.decoder = decoders.Metaspace()
    it.train_from_iterator(
        LINES,
        trainers.UnigramTrainer(
            vocab_size=400,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    it.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    it.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return it


def albert():
    it = Tokenizer(models.Unigram())
    it.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Strip(),
        ]
    )
    it.pre_tokenizer = pre.Metaspace(prepend_scheme="always")
    it.decoder = decoders.Metaspace()
    it.train_from_iterator(LINES, trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False))
    return it


def clip():
    it = Tokenizer(
        models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="~")
    )
    it.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    it.pre_tokenizer = pre.Sequence([pre.Whitespace(), pre.Digits(individual_digits=True)])
    it.decoder = decoders.BPEDecoder()
    it.train_from_iterator(
        LINES[:14],
        trainers.BpeTrainer(
            vocab_size=500,
            special_tokens=["<unk>"],
            end_of_word_suffix="</w>",
            continuing_subword_prefix="~",
            show_progress=False,
        ),
    )
    return it


def words():
    it = Tokenizer(models.WordLevel(unk_token="<unk>"))
    it.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.NFKC()])
    it.pre_tokenizer = pre.Sequence(
        [pre.WhitespaceSplit(), pre.Punctuation("contiguous"), pre.Digits()]
    )
    it.train_from_iterator(
        LINES,
        trainers.WordLevelTrainer(vocab_size=200, special_tokens=["<unk>"], show_progress=False),
    )
    it.add_tokens(
        [
            AddedToken("NEW", single_word=True),
            AddedToken("<l>", lstrip=True),
            AddedToken("<r>", rstrip=True),
            AddedToken("<lr>", lstrip=True, rstrip=True),
            AddedToken("Added Token", normalized=False),
            AddedToken("Added", normalized=False),
            AddedToken("add", normalized=True),
        ]
    )
    it.add_special_tokens([AddedToken("<|end|>", special=True, normalized=True)])
    return it


def splitter(behavior, invert):
    it = Tokenizer(models.WordLevel(unk_token="<unk>"))
    it.normalizer = normalizers.Lowercase()
    it.pre_tokenizer = pre.Sequence([pre.Split(Regex(r"[aeiou ]|\p{P}"), behavior, invert),
                                     pre.Punctuation("merged_with_previous")])
    it.train_from_iterator(
        LINES,
        trainers.WordLevelTrainer(vocab_size=150, special_tokens=["<unk>"], show_progress=False),
    )
    return it


def hugging_face(table):
    made = {
        "gpt2": gpt2(),
        "roberta": roberta(),
        "llama3": llama3(),
        "llama2": llama2(),
        "llama_new": llama_new(),
        "bert_uncased": bert(True),
        "bert_cased": bert(False),
        "xlm": xlm(table),
        "albert": albert(),
        "clip": clip(),
        "words": words(),
    }
    for behavior in (
        "removed",
        "isolated",
        "merged_with_previous",
        "merged_with_next",
        "contiguous",
    ):
        made[f"split_{behavior}"] = splitter(behavior, behavior == "contiguous")
    for name, it in made.items():
        state = json.loads(it.to_str())
        (HERE / f"{name}.json").write_text(
            json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n"
        )
    return made


def pieces():
    common = {"vocab_size": 400, "character_coverage": 0.98}
    rules = str(charsmap())
    return {
        "unigram": piece_model(
            "unigram", normalization_rule_tsv=rules, user_defined_symbols=["<mask>", "ab"], **common
        ),
        "unigram_bytes": piece_model(
            "unigram_bytes",
            normalization_rule_name="identity",
            byte_fallback=True,
            vocab_size=600,
            character_coverage=0.98,
        ),
        "bpe": piece_model(
            "bpe",
            model_type="bpe",
            normalization_rule_tsv=rules,
            user_defined_symbols=["<mask>", "ab"],
            **common,
        ),
        "bpe_bytes": piece_model(
            "bpe_bytes",
            model_type="bpe",
            normalization_rule_name="identity",
            byte_fallback=True,
            add_dummy_prefix=True,
            remove_extra_whitespaces=False,
            vocab_size=620,
            character_coverage=0.98,
            split_digits=True,
        ),
        "bpe_suffix": piece_model(
            "bpe_suffix",
            model_type="bpe",
            normalization_rule_name="identity",
            treat_whitespace_as_suffix=True,
            **common,
        ),
        "unigram_bare": piece_model(
            "unigram_bare",
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            **common,
        ),
    }


def cases(encode, decode, size, seed):
    draw = random.Random(seed)
    ids = [encode(text) for text in TEXTS]
    drawn = [[draw.randrange(size) for _ in range(draw.randint(1, 24))] for _ in range(16)]
    return {"ids": ids, "decoded": [decode(row) for row in ids],
            "raw": [encode(text.decode("utf-8", "replace")) for text in RAW],
            "drawn": drawn, "drawn_decoded": [decode(row) for row in drawn]}


def main():
    processors_ = pieces()
    (HERE / "rules.tsv").unlink()
    result = {
        "texts": TEXTS,
        "raw": [text.hex() for text in RAW],
        "hugging_face": {},
        "sentencepiece": {},
    }
    for name, it in hugging_face(normalizer_of(processors_["unigram"])).items():
        result["hugging_face"][name] = cases(
            lambda text, it=it: it.encode(text).ids, it.decode, it.get_vocab_size(), 1
        )
    for name, it in processors_.items():
        result["sentencepiece"][name] = cases(it.encode, it.decode, it.vocab_size(), 2)
    (HERE / "cases.json").write_text(
        json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n"
    )


if __name__ == "__main__":
    main()
