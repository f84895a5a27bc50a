"""Texts that tell tokenizers and templates apart, drawn from a seeded source."""

import string
import unicodedata

SCRIPTS = {
    "latin": "router prompt cache the of and a prefix block engine don't we'll I'M HTTPServer2 naïve Zürich façade coöperate".split(),
    "vietnamese": "Việt Nam tiếng được những người không trước nước đường".split(),
    "turkish": "İstanbul ışık ığdır çalışıyor ağaç".split(),
    "greek": "Ελληνικά λόγος καὶ ἄνθρωπος ΣΊΣΥΦΟΣ σίσυφος".split(),
    "cyrillic": "маршрутизатор запрос кэш ёлка їжак Ђорђе".split(),
    "hebrew": "שלום עולם בְּרֵאשִׁית נתב".split(),
    "arabic": "مرحبا بالعالم ذاكرة التخزين ٱلْحَمْدُ ١٢٣".split(),
    "devanagari": "नमस्ते दुनिया अनुरोध क्ष्म १२३".split(),
    "bengali": "নমস্কার বিশ্ব অনুরোধ".split(),
    "tamil": "வணக்கம் உலகம் கோரிக்கை".split(),
    "thai": "สวัสดีชาวโลก คำขอ น้ำ".split(),
    "khmer": "សួស្តី ពិភពលោក".split(),
    "ethiopic": "ሰላም ልዑል ዓለም".split(),
    "georgian": "გამარჯობა მსოფლიო ᲗᲑᲘᲚᲘᲡᲘ".split(),
    "chinese": "你好 世界 路由器 缓存，前缀。 𠀀𠮷 繁體中文".split(),
    "japanese": "こんにちは 世界 ルーター ｶﾀｶﾅ がぎぐ ㍿".split(),
    "korean": "안녕하세요 세계 라우터 한글".split(),
    "math": "∀x∈ℝ ⌈x⌉ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ½ x² ﬁ Ω Å".split(),
}
EMOJI = [
    "😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "1️⃣", "✅", "☃", "❤️", "❤", "🧑🏿‍🚀", "🫠", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "©️", "🤦🏼‍♂️", "\U0001fae8",
]
SPACES = [" ", "  ", "    ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r", " \n", "\n ", "\n\t", "\u00a0", "\u3000",
          "\u2003", "\u2009", "\u200b", "\u202f", "\u1680", "\u180e", "\ufeff", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85",
          "\u2028", "\u2029", " " * 17, "\n" * 9, " \t \n \r\n "]
PUNCTUATION = ["...", "—", "–", "“”", "‘’", "!!", "?!", "#$%", "@", "&&", "||", "->", "=>", "::", "//", "/*", "*/", "\\n", "\\\\",
               "==", "!=", "<=", "</", "/>", "{{", "}}", "{%", "%}", "$x_1^2$", "`", "```", "~~", "…", "。", "、", "،", "؟", "।", "·"]
CODE = [
    "def f(a, *, b=None):\n    return {\"k\": [a, b], 'n': 1e-7}  # TODO\n",
    "fn main() {\n\tlet x: Vec<u32> = (0..10).map(|i| i * 2).collect();\n\tprintln!(\"{x:?}\");\n}\n",
    "SELECT u.id, COUNT(*) FROM users u WHERE u.name LIKE '%o''b%' GROUP BY 1;\n",
    "<div class=\"a b\" data-x='1'>&nbsp;<b>x</b> < y & z</div>\n",
    "{\"a\":[1,2.50,-0,1e5],\"b\":{\"c\":null}}",
    "# Heading\n\n* item\n  1. nested\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "for i in {1..3}; do echo \"$i\" | sed 's/a/b/g' >> out.txt; done\n",
    "\\begin{equation}\\sum_{i=0}^{n} x_i\\end{equation}",
    "https://example.org/a/b.html?c=d&e=%20#frag user@example.org C:\\Users\\x\\y.txt 192.168.0.1 fe80::1",
    "{% raw %}{{ messages }}{% endraw %} {{ bos_token }} {# comment #}",
    "diff --git a/x b/x\n@@ -1,2 +1,3 @@\n-old\n+new\n",
]
NUMBERS = ["0", "7", "42", "123", "1234", "12345", "1234567", "3.14159", "1,234,567.89", "1e-7", "0xDEADBEEF", "2024-02-29T12:34:56Z",
           "+49 30 1234567", "v1.2.3-rc.4", "½", "٣٤٥", "१२३", "ⅷ", "1st", "50%", "$9.99", "00000000000000", "9" * 40]
# Control tokens of many families: foreign ones must stay text, the tokenizer's own become ids.
FOREIGN = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>",
           "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]", "<think>", "</think>", "<tool_call>",
           "</tool_call>", "<tool_response>", "</tool_response>", "<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<unk>", "<pad>", "<mask>",
           "<0x0A>", "▁", "Ġ", "<|python_tag|>", "<unused7>", "<|fim_prefix|>", "<|reserved_special_token_5|>", "CONTINUE_FINAL_MESSAGE_TAG"]
MARKS = [chr(c) for c in list(range(0x300, 0x330)) + [0x345, 0x483, 0x5B0, 0x64B, 0x670, 0x93C, 0x94D, 0x20D0, 0x3099, 0x309A, 0xFE0F, 0x1D165]]
RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0x1100, 0x11FF), (0x1E00, 0x20CF), (0x2100, 0x2BFF),
          (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFFFD),
          (0x10000, 0x100FF), (0x10400, 0x104FF), (0x1D100, 0x1D7FF), (0x1F000, 0x1FAFF), (0x20000, 0x200FF), (0x2F800, 0x2FA1F),
          (0xE0000, 0xE01EF), (0x10FF00, 0x10FFFD)]


class Texts:
    """Draws texts; `own` are the tokenizer's added tokens."""

    def __init__(self, random, own):
        self.random, self.own = random, own

    def words(self):
        pool = SCRIPTS[self.random.choice(list(SCRIPTS))]
        return " ".join(self.random.choice(pool) for _ in range(self.random.randint(1, 12)))

    def mixed_words(self):
        pools = list(SCRIPTS.values())
        return self.random.choice(["", " ", "-", "_", "\u200b"]).join(
            self.random.choice(self.random.choice(pools)) for _ in range(self.random.randint(2, 8)))

    def normal_forms(self):
        form = self.random.choice(["NFC", "NFD", "NFKC", "NFKD"])
        return unicodedata.normalize(form, self.mixed_words())

    def combining(self):
        return "".join(self.random.choice("aeiouyAOcnsｱアか가ᄀक ") + "".join(
            self.random.choice(MARKS) for _ in range(self.random.randint(0, 5))) for _ in range(self.random.randint(1, 10)))

    def controls(self):
        pool = [chr(c) for c in list(range(0x00, 0x20)) + list(range(0x7F, 0xA0)) + [0x200B, 0x200C, 0x200D, 0x200E, 0x202A, 0x202E, 0x2060,
                0x2066, 0xFEFF, 0xFFF9, 0xFFFD, 0xFFFE, 0xFFFF, 0x1FFFF]]
        return "".join(self.random.choice(pool + list("ab ")) for _ in range(self.random.randint(1, 16)))

    def code_points(self):
        def one():
            low, high = self.random.choice(RANGES)
            return chr(self.random.randint(low, high))
        return "".join(one() for _ in range(self.random.randint(1, 40)))

    def spaces(self):
        return "".join(self.random.choice(SPACES) + self.random.choice(["", "", "a", "é", "1", "."]) for _ in range(self.random.randint(1, 8)))

    def emoji(self):
        return self.random.choice(["", " "]).join(self.random.choice(EMOJI) for _ in range(self.random.randint(1, 6)))

    def punctuation(self):
        return self.random.choice(["", " "]).join(self.random.choice(PUNCTUATION) for _ in range(self.random.randint(1, 8)))

    def numbers(self):
        return self.random.choice([" ", "", ",", "\n"]).join(self.random.choice(NUMBERS) for _ in range(self.random.randint(1, 6)))

    def code(self):
        return self.random.choice(CODE)

    def long_word(self):
        length = self.random.choice([60, 300, 1000, 3000])
        kind = self.random.randrange(7)
        if kind == 0:
            return self.random.choice("aAx0-= é你😀\u0301\n") * length
        if kind == 1:
            return "".join(self.random.choice(string.ascii_letters + string.digits + "+/") for _ in range(length)) + "=="
        if kind == 2:
            return "".join(self.random.choice(string.ascii_lowercase) for _ in range(length))
        if kind == 3:
            return "".join(chr(self.random.randint(0x4E00, 0x9FFF)) for _ in range(length))
        if kind == 4:
            return "".join(self.random.choice(string.digits) for _ in range(length))
        if kind == 5:
            return "".join(self.random.choice(string.punctuation) for _ in range(length))
        return self.random.choice(["ab", "la", "Ba", "the", "..", "\t\n", "어", "न", "🇩🇪"]) * (length // 2)

    def special(self):
        def one():
            token = self.random.choice(self.own if self.own and self.random.random() < 0.7 else FOREIGN)
            change = self.random.randrange(10)
            if change == 0:
                return token[:-1]
            if change == 1:
                return token[1:]
            if change == 2:
                return token.upper()
            if change == 3:
                cut = self.random.randint(0, len(token))
                return token[:cut] + self.random.choice(SPACES) + token[cut:]
            return token
        joins = ["", "", " ", "\n", "a", "\u0301", "  "]
        return "".join(one() + self.random.choice(joins) for _ in range(self.random.randint(1, 5)))

    def thinking(self):
        return self.random.choice(["<think>\n{0}\n</think>\n\n{1}", "<think>{0}</think>{1}", "{0}</think>{1}", "<think>{0}", "{0}</think>\n\n\n{1}</think>x",
                                   "<tool_response>\n{0}\n</tool_response>", "<tool_response>{0}</tool_response>{1}"]).format(self.words(), self.words())

    def trimmed(self):
        return self.random.choice(SPACES) + self.words() + self.random.choice(SPACES) + self.random.choice(SPACES)

    def piece(self):
        kinds = [(self.words, 5), (self.mixed_words, 3), (self.normal_forms, 2), (self.combining, 2), (self.controls, 1), (self.code_points, 2),
                 (self.spaces, 2), (self.emoji, 2), (self.punctuation, 2), (self.numbers, 2), (self.code, 2), (self.special, 3),
                 (self.thinking, 1), (self.trimmed, 2)]
        return self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()

    def text(self):
        """One text: usually a few pieces, now and then a very long word or a long document."""
        if self.random.random() < 0.04:
            return self.long_word()
        count = self.random.choices([1, 2, 3, 5, 60], [40, 30, 15, 13, 2])[0]
        return self.random.choice(["", " ", "\n", "\n\n"]).join(self.piece() for _ in range(count))

    def short(self):
        return self.random.choice([self.words, self.numbers, self.normal_forms, self.emoji])()
