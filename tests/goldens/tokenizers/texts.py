"""The texts for training the tokenizers, and the texts of their goldens."""

import pathlib
import random
import unicodedata

LINES = (pathlib.Path(__file__).parent / "corpus.txt").read_text().splitlines()

WRITTEN = [
    "",
    " ",
    "  ",
    "\n",
    "a",
    " a",
    "a ",
    "  a  b  ",
    "Hello, world!",
    "hello   world\n\n\tagain ",
    "It's they'd WE'VE I'M can't o'clock",
    "1234567 89 3.14 ½ ① ٣٤٥ ५६ Ⅷ",
    "The server answers. Queues grow",
    "Ünïcödé Straße İstanbul ΣΊΣΥΦΟΣ ǅ",
    "e\u0301 é n\u0303 ñ a\u0323\u0302 ậ ế",
    "ﬁnally ﬂat … ＡＢＣ　wide",
    "中文字符 mixed 混合 text 日本語",
    "カタカナ ｶﾀｶﾅ ㌀ が か\u3099",
    "한국어 조합 \u1112\u1161\u11ab",
    "สวัสดีชาวโลก",
    "नमस्ते क्षत्रिय",
    "مرحبا بالعالم",
    "שָׁלוֹם",
    "🙂👍🏽👩‍👩‍👧🇩🇪☃️✨",
    "zero\u200bwidth\u200djoiner\ufeffbom",
    "tabs\tand\vvertical\fform\u0085next\u00a0nbsp\u2003em\u3000ideographic",
    "\x00control\x01\x1f\x7f\u0080\u00ad",
    "\ufffd replacement \ufffd\ufffd",
    "x" * 300,
    "ab" * 150,
    " " * 200,
    "!" * 90,
    "\n" * 50 + "end",
    "é" * 120,
    "▁metaspace▁ ▁▁ x ▁y",
    "##wordpiece ## #",
    "<0x41><0x0A> <unk> <s> </s> [CLS] [SEP] [UNK] [MASK]",
    "<|end|> <|end|>a b<|end|><|end|>",
    "a<mask>b <mask> c  <mask>  d<mask>",
    "word NEW wordNEW NEWword NEW,NEW",
    "Left  <l>  text  <r>  right <lr> x",
    "added Token ADDED TOKEN added token",
    "don't stop . ok ? yes ! do not n't 's",
    "https://example.org/path?q=1&r=%20#frag",
    "def f(x):\n    return {'a': [x, 'b']}  # c\n",
    "\r\n\r\n mixed \r ends",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐍈 𓀀",
    "ǰ ŉ ẞ ΐ ŀ",
    "...---===***",
    "CamelCaseAndsnake_case and kebab-case",
    "a\u0300\u0301\u0302\u0303b",
]
RAW = [
    b"\xff",
    b"a\xc3",
    b"\xe4\xbd",
    b"\xe4\xbda\xbd",
    b"ok\xf0\x9f\x99 cut",
    b"\xed\xa0\x80",
    b"\xc0\x80x\xf5",
    b"\xf4\x90\x80\x80",
    b"\x80\x81 \xe2\x82z",
]


def random_texts(count, seed):
    """Returns strings with several scripts each and only characters of Unicode 14."""
    draw = random.Random(seed)
    ranges = [
        (0x20, 0x7E),
        (0x20, 0x7E),
        (0xA0, 0x24F),
        (0x300, 0x36F),
        (0x370, 0x52F),
        (0x5D0, 0x6FF),
        (0x900, 0x97F),
        (0xE00, 0xE5B),
        (0x1100, 0x11FF),
        (0x1E00, 0x1FFF),
        (0x2000, 0x206F),
        (0x20A0, 0x24FF),
        (0x2600, 0x27BF),
        (0x3000, 0x30FF),
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A3),
        (0xFB00, 0xFB4F),
        (0xFF00, 0xFFEF),
        (0x1D400, 0x1D7FF),
        (0x1F300, 0x1F64F),
        (0x09, 0x0D),
    ]
    texts = []
    for _ in range(count):
        some = draw.sample(ranges, 4)
        text = ""
        while len(text) < 24:
            character = chr(draw.randint(*draw.choice(some)))
            if unicodedata.category(character) not in ("Cn", "Cs"):
                text += character * draw.choice([1, 1, 1, 1, 2, 3])
                text += draw.choice(["", "", "", "", " "])
        texts.append(text)
    return texts


TEXTS = WRITTEN + LINES + random_texts(24, 7)
