"""Trains tokenizers of every kind, and encodes texts with them. Runs in an environment that has the
libraries `tokenizers` and `transformers`.

    tokenizer_cases.py make FOLDER       writes FOLDER/NAME/tokenizer.json, and the files next to it
    tokenizer_cases.py encode FOLDER     reads FOLDER/texts.json and writes FOLDER/NAME/expected.npz
"""

import json
import os
import pathlib
import sys

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors, trainers

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "tokenizers"
LINES = (GOLDENS / "corpus.txt").read_text().splitlines()
BOS, EOS, UNK = "<s>", "</s>", "<unk>"
SPECIALS = [BOS, EOS, UNK, "<pad>", "<mask>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# The expressions of published tokenizers.
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = GPT4.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
CLIP = (r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|"
        r"[^\s\p{L}\p{N}]+")


def build(model, trainer, normalizer=None, splitter=None, post=None, added=(), lines=LINES):
    """Trains a tokenizer on the lines, then gives it the post-processor and the added tokens."""
    it = Tokenizer(model)
    if normalizer:
        it.normalizer = normalizer
    if splitter:
        it.pre_tokenizer = splitter
    it.train_from_iterator(lines, trainer)
    if post:
        it.post_processor = post(it)
    it.add_tokens(list(added))
    return json.loads(it.to_str())


def template(single="<s> $A </s>"):
    return lambda it: processors.TemplateProcessing(
        single=single, pair=f"{single} $B:1 </s>:1",
        special_tokens=[(each, it.token_to_id(each)) for each in (BOS, EOS)])


def roberta(trim=True):
    return lambda it: processors.RobertaProcessing(
        (EOS, it.token_to_id(EOS)), (BOS, it.token_to_id(BOS)), trim_offsets=trim)


def bert_frame(it):
    return processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))


def byte_level(splitter=(), post=None, normalizer=None, size=480, model=None, after=(),
               **options):
    options = {"add_prefix_space": False, **options}
    splitters = [*splitter, pre.ByteLevel(**options), *after]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False,
                                  initial_alphabet=pre.ByteLevel.alphabet())
    return build(model or models.BPE(), trainer, normalizer,
                 pre.Sequence(splitters) if len(splitters) > 1 else splitters[0], post)


def split(expression, behavior="isolated", invert=False):
    return pre.Split(Regex(expression), behavior, invert)


def bpe(normalizer=None, splitter=None, post=None, lines=LINES[:14], added=(), prefix=None,
        suffix=None, bytes_too=False, **model):
    specials = SPECIALS + ([f"<0x{byte:02X}>" for byte in range(256)] if bytes_too else [])
    joined = {"continuing_subword_prefix": prefix, "end_of_word_suffix": suffix}
    joined = {name: value for name, value in joined.items() if value is not None}
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=specials, show_progress=False,
                                  **joined)
    made = build(models.BPE(unk_token=UNK, byte_fallback=bytes_too, **joined, **model), trainer,
                 normalizer, splitter, post, added, lines)
    if bytes_too:  # They are not special: a text may have them.
        made["added_tokens"] = made["added_tokens"][:len(SPECIALS)]
    return made


def word_piece(normalizer=None, splitter=None, added=(), size=620, prefix="##", longest=100):
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=BERT, show_progress=False,
                                        continuing_subword_prefix=prefix)
    made = build(models.WordPiece(unk_token="[UNK]"), trainer,
                 normalizer or normalizers.BertNormalizer(), splitter or pre.BertPreTokenizer(),
                 bert_frame, added)
    made["model"]["max_input_chars_per_word"] = longest
    return made


def unigram(normalizer=None, splitter=None, post=None, size=400, added=(), bytes_too=False):
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=SPECIALS, unk_token=UNK,
                                      show_progress=False)
    made = build(models.Unigram(), trainer, normalizer, splitter or pre.Metaspace(), post, added,
                 LINES[:14])
    if bytes_too:
        made["model"]["byte_fallback"] = True
        made["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    return made


def words(splitter, normalizer=None, post=None, added=(), size=250):
    trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=SPECIALS,
                                        show_progress=False)
    return build(models.WordLevel(unk_token=UNK), trainer, normalizer, splitter, post, added)


def precompiled(*after):
    """Returns a normalizer with the table of characters of a SentencePiece model."""
    table = json.loads((GOLDENS / "xlm.json").read_text())["normalizer"]["normalizers"][0]
    made = Tokenizer(models.BPE())
    state = json.loads(made.to_str())
    state["normalizer"] = table
    return normalizers.Sequence([Tokenizer.from_str(json.dumps(state)).normalizer, *after])


def flags():
    """Yields added tokens with every combination of flags, some of them within others."""
    for i in range(16):
        yield AddedToken(f"<a{i}>", lstrip=bool(i & 1), rstrip=bool(i & 2),
                         single_word=bool(i & 4), normalized=bool(i & 8))
    yield AddedToken("Added Token", normalized=False)
    yield AddedToken("Added", normalized=False)
    yield AddedToken("add", normalized=True)
    yield AddedToken("É", normalized=True)


def of_bytes():
    """Yields (name, tokenizer) of byte-level BPE."""
    yield "gpt2", byte_level(post=lambda it: processors.ByteLevel(trim_offsets=False))
    yield "roberta", byte_level(post=roberta(), add_prefix_space=True)
    yield "roberta_untrimmed", byte_level(post=roberta(trim=False), add_prefix_space=True)
    yield "llama3", byte_level([split(GPT4)], use_regex=False, model=models.BPE(ignore_merges=True),
                               post=lambda it: processors.Sequence([
                                   processors.ByteLevel(trim_offsets=True), template("<s> $A")(it)
                               ]))
    yield "qwen2", byte_level([split(QWEN)], normalizer=normalizers.NFC(), use_regex=False)
    yield "o200k", byte_level([split(O200K)], use_regex=False)
    yield "bloom", byte_level([split(BLOOM)], use_regex=False, post=template())
    yield "starcoder", byte_level([pre.Digits(individual_digits=True)])
    yield "falcon", byte_level([pre.Punctuation("contiguous")],
                               after=[pre.Digits(), split("[0-9][0-9][0-9]")])
    yield "deepseek", byte_level(
        [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
         pre.Digits(individual_digits=True)], use_regex=False)
    yield "digits_in_threes", byte_level([split(r"\d{1,3}(?=(?:\d{3})*\b)")])
    made = byte_level([split(CLIP, "removed", True)], roberta(trim=False), use_regex=False,
                      normalizer=normalizers.Sequence([
                          normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                          normalizers.Lowercase()]))
    made["model"]["unk_token"] = UNK
    yield "clip", made
    made = byte_level(normalizer=normalizers.NFC())
    made["added_tokens"] += [
        {"id": 480 + i, "content": " " * (i + 2), "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": True, "special": False} for i in range(8)]
    yield "neox_with_runs_of_spaces", made
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=SPECIALS, show_progress=False,
                                  initial_alphabet=pre.ByteLevel.alphabet())
    yield "byte_level_normalizer", build(
        models.BPE(), trainer, normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()]))


def of_pieces():
    """Yields (name, tokenizer) of BPE and Unigram with marks for spaces."""
    marks = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    yield "llama2", bpe(marks, post=template("<s> $A"), fuse_unk=True, bytes_too=True)
    yield "llama2_unknown", bpe(marks, fuse_unk=True)
    yield "gemma", bpe(normalizers.Replace(" ", "▁"), pre.Split(" ", "merged_with_previous"),
                       template("<s> $A"), fuse_unk=True, bytes_too=True)
    for scheme in ("always", "never", "first"):
        for splits in (True, False):
            yield f"metaspace_{scheme}_{splits}", bpe(
                None, pre.Metaspace(prepend_scheme=scheme, split=splits), fuse_unk=splits,
                bytes_too=scheme == "first", added=flags() if splits else ())
    yield "suffix", bpe(normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]),
                        pre.Sequence([pre.Whitespace(), pre.Digits(individual_digits=True)]),
                        suffix="</w>")
    yield "prefix", bpe(normalizers.NFKC(), pre.WhitespaceSplit(), prefix="##")
    yield "xlm", unigram(precompiled(normalizers.Replace(Regex(" {2,}"), " ")),
                         pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()]), template(),
                         added=[AddedToken("<mask2>", lstrip=True)])
    yield "t5", unigram(precompiled(), pre.Metaspace(prepend_scheme="always"), template("$A </s>"))
    yield "albert", unigram(
        normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(),
                              normalizers.StripAccents(), normalizers.Lowercase(),
                              normalizers.Strip()]), post=template())
    yield "unigram_bytes", unigram(normalizers.NFKC(), bytes_too=True)
    yield "nmt", unigram(normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]))
    yield "unigram_words", unigram(normalizers.NFD(), pre.Whitespace(), added=flags())


def of_words():
    """Yields (name, tokenizer) of WordPiece and WordLevel."""
    bert = normalizers.BertNormalizer
    yield "bert_uncased", word_piece()
    yield "bert_cased", word_piece(bert(lowercase=False))
    yield "bert_accents", word_piece(bert(strip_accents=False))
    yield "bert_cased_no_accents", word_piece(bert(lowercase=False, strip_accents=True))
    yield "bert_no_ideographs", word_piece(bert(handle_chinese_chars=False))
    yield "bert_unclean", word_piece(bert(clean_text=False), added=flags())
    yield "bert_short_words", word_piece(longest=4)
    yield "word_piece_bare", word_piece(prefix="")
    yield "word_piece_of_parts", word_piece(
        normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(right=False),
                              normalizers.Lowercase(), normalizers.NFD(),
                              normalizers.StripAccents()]),
        pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation("merged_with_next")]))
    yield "words", words(pre.Sequence([pre.WhitespaceSplit(), pre.Punctuation("contiguous"),
                                       pre.Digits()]),
                         normalizers.Sequence([normalizers.NFD(), normalizers.NFKC()]),
                         added=flags())
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next",
                     "contiguous"):
        for invert in (False, True):
            yield f"split_{behavior}_{invert}", words(
                pre.Sequence([split(r"[aeiou ]|\p{P}", behavior, invert),
                              pre.Punctuation(behavior)]), normalizers.Lowercase())
    yield "anchors", words(split(r"^\w+|\w+$|[[:punct:]]{1,2}|\h{2,3}+"),
                           normalizers.Replace(Regex(r"^ +| +$"), "_"))
    yield "characters", words(split(""), normalizers.NFKD())
    yield "delimiter", words(pre.CharDelimiterSplit("e"))
    yield "scripts", words(pre.Sequence([pre.UnicodeScripts(), pre.WhitespaceSplit()]))
    yield "fixed_length", words(pre.FixedLength(3))


def with_settings():
    """Yields (name, tokenizer, other files): `transformers` reads these folders."""
    def config(kind, **keys):
        return {"tokenizer_config.json": {"tokenizer_class": kind, **keys}}

    bert = word_piece(normalizers.BertNormalizer(lowercase=False))
    ends = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
            "pad_token": "[PAD]", "mask_token": "[MASK]"}
    for lower in (True, False):
        for strip in (None, True, False):
            yield f"settings_bert_{lower}_{strip}", bert, config(
                "BertTokenizer", do_lower_case=lower, strip_accents=strip,
                tokenize_chinese_chars=strip is None, **ends)
    gpt2 = byte_level()
    for prefix in (True, False):
        yield f"settings_gpt2_{prefix}", gpt2, config(
            "GPT2Tokenizer", add_prefix_space=prefix, bos_token=BOS, eos_token=EOS, unk_token=UNK)
    fast = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNK, "pad_token": "<pad>"}
    yield "settings_decoder", words(pre.Whitespace()), config(
        "PreTrainedTokenizerFast", **fast, added_tokens_decoder={
            "250": {"content": "Added Token", "lstrip": True, "rstrip": False, "normalized": False,
                    "single_word": False, "special": True},
            "251": {"content": "add", "lstrip": False, "rstrip": True, "normalized": True,
                    "single_word": True, "special": False}})
    yield "settings_extra", words(pre.Whitespace()), config(
        "PreTrainedTokenizerFast", **fast, extra_special_tokens=["<a1>", "Added"])
    yield "settings_additional", words(pre.Whitespace()), {
        **config("PreTrainedTokenizerFast", **fast),
        "special_tokens_map.json": {**fast, "additional_special_tokens": ["<a2>", "Added Token"]}}


def cases():
    for part in (of_bytes, of_pieces, of_words):
        for name, made in part():
            yield name, made, {}
    yield from with_settings()


def make(folder):
    for name, tokenizer, files in cases():
        (folder / name).mkdir(parents=True)
        for file, content in {"tokenizer.json": tokenizer, **files}.items():
            (folder / name / file).write_text(json.dumps(content, ensure_ascii=False))
    print(json.dumps("done"))


class Texts:
    """Texts one after the other, for converting ranges of characters into bytes."""

    def __init__(self, texts):
        points = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
        sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
        self.bytes = np.concatenate([[0], np.cumsum(sizes)])
        self.first = np.concatenate([[0], np.cumsum([len(each) for each in texts])])
        # The characters with the property White_Space.
        space = np.isin(points, [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
                                 0x2028, 0x2029, 0x202F, 0x205F, 0x3000])
        places = np.arange(len(points))
        ends = np.where(space, 0, places + 1)
        self.end = np.concatenate([[0], np.maximum.accumulate(ends)])
        begins = np.where(space, len(points), places)
        self.begin = np.concatenate([np.minimum.accumulate(begins[::-1])[::-1], [len(points)]])

    def ranges(self, counts, offsets):
        """Returns the byte ranges of tokens without white space around them; -1 without bytes."""
        first = np.repeat(self.first[:-1], counts)
        offsets = offsets + first[:, None]
        begin, end = self.begin[offsets[:, 0]], self.end[offsets[:, 1]]
        found = np.stack([self.bytes[begin], self.bytes[end]], -1) - self.bytes[first][:, None]
        return np.where((begin < end)[:, None], found, -1)


def untrimmed(tokenizer):
    """Returns a tokenizer without `trim_offsets`, which also cuts the first character of a word
    after an added token. The ranges are trimmed here."""
    state = json.loads(tokenizer.to_str())
    processor = state["post_processor"] or {}
    for each in [processor, *processor.get("processors", [])]:
        if "trim_offsets" in each:
            each["trim_offsets"] = False
    return Tokenizer.from_str(json.dumps(state))


def encode(folder):
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    texts = json.loads((folder / "texts.json").read_text())
    places = Texts(texts)
    for file in sorted(folder.glob("*/tokenizer.json")):
        if (file.parent / "tokenizer_config.json").exists():
            import transformers
            tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent).backend_tokenizer
        else:
            tokenizer = Tokenizer.from_file(str(file))
        tokenizer = untrimmed(tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        found = tokenizer.encode_batch(texts)
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        spaces = [number for token, number in vocabulary.items() if not token.strip("▁Ġ ")]
        counts = [len(each.ids) for each in found]
        ids = np.concatenate([np.array(each.ids, np.int64) for each in found])
        offsets = np.concatenate([np.array(each.offsets, np.int64).reshape(-1, 2)
                                  for each in found])
        np.savez(file.parent / "expected.npz", counts=counts, ids=ids, spaces=spaces,
                 ranges=places.ranges(counts, offsets), metaspace="Metaspace" in tokenizer.to_str())
    print(json.dumps("done"))


if __name__ == "__main__":
    {"make": make, "encode": encode}[sys.argv[1]](pathlib.Path(sys.argv[2]))
