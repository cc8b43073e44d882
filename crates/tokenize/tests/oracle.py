"""Conversations, and the tokens that `transformers` makes of them.

    oracle.py FOLDER

FOLDER has a tokenizer and a `config.json` that says what kind of model it is. On standard output, one JSON object for each
conversation: `body` as a client would send it, and `tokens`, or `error` if the template refuses it.

What an engine does before it calls the template is written down here once more, from the engine's documentation and not from
our own code: arguments of calls become objects, contents become one text or a list of parts, tools get the engine's fields.
"""

import json
import random
import sys
from datetime import datetime, timezone

from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

# The forms of contents that the engine finds out for these templates; all others take one text.
PARTS = {"gemma3_text"}
CONVERSATIONS = 120
# What the clock of the tests shows.
NOW = 1_720_000_000

WORDS = """the a of and to in is that it was for on are as with his they at be this from have or by one had not but what all
were when we there can an your which their said if do will each about how up out them then she many some so these would other
into has more her two like him see time could no make than first been its who now people my made over did down only way find
use may water long little very after words called just where most know tokenizer conversation prefix cache engine request""".split()
PIECES = [
    "",
    " ",
    "\n",
    "  two  spaces  ",
    "tabs\tand\r\nlines\n\n\n",
    "It's we'll I'M YOU'RE 'tis",
    "1234567890 3.14159 1,000,000 0x7f",
    "naïve café Ünïcödé ﬁ Å e\u0301 \u00e9 \u1e9b\u0323",
    "你好,世界。今天天气怎么样？",
    "こんにちは世界 カタカナ 한국어 텍스트",
    "مرحبا بالعالم עברית",
    "👩‍👩‍👧‍👦 🇩🇪 😀😃 👍🏽",
    "\u200b\u200d\ufeff\u00a0\u3000\u2028 \x1c\x1f",
    "def f(x):\n    return {'a': [1, 2], \"b\": x ** 2}  # done\n",
    "<div class=\"a\">&amp; <b>bold</b></div>",
    "{\"json\": [1, 2.5, null, true], \"text\": \"a\\nb\"}",
    "```rust\nfn main() { println!(\"{}\", 1 << 3); }\n```",
    "!!!???... --- *** ___ $$$ %%% @@@",
    "<think>thoughts</think> answer </think>",
    "https://example.org/a/b?c=d&e=%20#f",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\\n \\t \\\\ \" ' `",
    "{{ not.a.template }} {% raw %} {# note #}",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𓀀 ꧁꧂ \U0001f9ff",
]
SCHEMAS = [
    {"type": "object", "properties": {}},
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "A \"city\", e.g. Köln"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
    {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}},
            "limit": {"type": "number", "minimum": 0.5, "maximum": 1e21, "default": 1e-7},
            "deep": {"type": "object", "additionalProperties": False, "properties": {"x": {"const": None}}},
        },
        "additionalProperties": False,
    },
]


class Generator:
    """Conversations that are the same for every run."""

    def __init__(self, special, seed):
        self.random = random.Random(seed)
        self.special = special

    def text(self, most=6):
        parts = []
        for _ in range(self.random.randint(0, most)):
            kind = self.random.random()
            if kind < 0.55:
                parts.append(" ".join(self.random.choices(WORDS, k=self.random.randint(1, 40))))
            elif kind < 0.95:
                parts.append(self.random.choice(PIECES))
            else:
                parts.append(self.random.choice(self.special))
        return self.random.choice(["", " ", "\n", "\n\n"]).join(parts)

    def content(self):
        kind = self.random.random()
        if kind < 0.8:
            return self.text()
        parts = [{"type": "text", "text": self.text()} for _ in range(self.random.randint(1, 3))]
        return parts + ([self.text()] if kind > 0.95 else [])

    def tool(self):
        function = {
            "name": self.random.choice(["get_weather", "search", "run-code", "größe"]),
            "description": self.text(2),
            "parameters": self.random.choice(SCHEMAS),
        }
        if self.random.random() < 0.3:
            del function["description"]
        if self.random.random() < 0.2:
            function["strict"] = True
        # Clients send fields in any order.
        keys = list(function)
        self.random.shuffle(keys)
        return {"function": {key: function[key] for key in keys}, "type": "function"}

    def call(self):
        arguments = {"city": self.text(1), "n": self.random.choice([1, 2.0, 1e22, -0.5, None, True]), "list": [1, "x", {}]}
        written = self.random.choice([json.dumps(arguments), json.dumps(arguments, ensure_ascii=False), "{}", ""])
        name = "".join(self.random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9))
        return {"id": name, "type": "function", "function": {"name": "get_weather", "arguments": written}}

    def alternating(self, index):
        """What every template takes: a user and an assistant in turns, no tools."""
        messages = [{"role": "system", "content": self.content()}] if self.random.random() < 0.5 else []
        for turn in range(self.random.choice([1, 1, 3, 5, 9])):
            messages.append({"role": ["user", "assistant"][turn % 2], "content": self.content()})
        body = {"messages": messages, "model": "m"}
        if index % 8 == 0:
            messages.append({"role": "assistant", "content": "So far " + self.text() + "x"})
            body.update(continue_final_message=True, add_generation_prompt=False)
        if index % 24 == 2:
            messages[-1]["content"] = "\n\n".join(self.text(12) for _ in range(60))
        return body

    def body(self, index):
        if index % 2 == 0:
            return self.alternating(index)
        body = {"model": "m", "messages": []}
        messages = body["messages"]
        if self.random.random() < 0.6:
            messages.append({"role": "system", "content": self.content()})
        elif self.random.random() < 0.1:
            messages.append({"role": "developer", "content": self.text()})
        with_tools = self.random.random() < 0.5
        if with_tools:
            body["tools"] = [self.tool() for _ in range(self.random.randint(1, 3))]
        for _ in range(self.random.choice([1, 1, 2, 3, 6])):
            user = {"role": "user", "content": self.content()}
            if self.random.random() < 0.1:
                user["name"] = "bob"
            messages.append(user)
            if self.random.random() < 0.75:
                self.answer(messages, with_tools)
        if messages[-1]["role"] == "assistant" and self.random.random() < 0.5:
            messages[-1]["content"] = messages[-1].get("content") or "so far"
            body["continue_final_message"] = True
            body["add_generation_prompt"] = False
        elif self.random.random() < 0.15:
            body["add_generation_prompt"] = False
        if self.random.random() < 0.1:
            body["documents"] = [{"title": "t", "text": self.text(2)}]
        if self.random.random() < 0.2:
            body["reasoning_effort"] = self.random.choice(["none", "low", "high"])
        if self.random.random() < 0.3:
            body["chat_template_kwargs"] = {"enable_thinking": self.random.random() < 0.5, "custom": [1]}
        if index % 20 == 7 and messages[-1]["role"] != "user":
            messages.append({"role": "user", "content": "\n\n".join(self.text(12) for _ in range(60))})
            body.pop("continue_final_message", None)
        return body

    def answer(self, messages, with_tools):
        answer = {"role": "assistant", "content": self.content()}
        messages.append(answer)
        if self.random.random() < 0.25:
            answer[self.random.choice(["reasoning", "reasoning_content"])] = self.text(2)
        if with_tools and self.random.random() < 0.6:
            answer["tool_calls"] = [self.call() for _ in range(self.random.choice([1, 1, 1, 2]))]
            if self.random.random() < 0.7:
                answer["content"] = self.random.choice([None, ""])
            for call in answer["tool_calls"]:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.content()})
            if self.random.random() < 0.8:
                messages.append({"role": "assistant", "content": self.text()})


def seen_content(content, parts):
    listed = [] if content is None else [content] if isinstance(content, str) else content
    texts = [part if isinstance(part, str) else part["text"] for part in listed]
    return [{"type": "text", "text": text} for text in texts] if parts else "\n".join(texts)


def seen_messages(messages, parts):
    seen = []
    for message in messages:
        role = message["role"]
        entry = {"role": role, "content": seen_content(message.get("content"), parts and role != "tool")}
        if message.get("tool_calls"):
            entry["tool_calls"] = [
                {
                    "id": call["id"],
                    "function": {
                        "arguments": json.loads(call["function"]["arguments"] or "{}"),
                        "name": call["function"]["name"],
                    },
                    "type": "function",
                }
                for call in message["tool_calls"]
            ]
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        if role == "assistant" and ("reasoning" in message or "reasoning_content" in message):
            entry["reasoning"] = entry["reasoning_content"] = reasoning or ""
        if role == "tool":
            entry["tool_call_id"] = message["tool_call_id"]
        if "name" in message:
            entry["name"] = message["name"]
        seen.append(entry)
    return seen


def without_developers(seen, template):
    """A template that does not know developers hears the system instead, once and first."""
    if "developer" in template or all(message["role"] != "developer" for message in seen):
        return seen
    said = [message for message in seen if message["role"] in ("system", "developer")]
    assert seen[: len(said)] == said, "the generator puts them first"
    return [{"role": "system", "content": said[0]["content"]}, *seen[len(said) :]]


def seen_tools(tools):
    if tools is None:
        return None
    seen = []
    for tool in tools:
        given = tool["function"]
        function = {key: given.get(key) for key in ("name", "description", "parameters")}
        if given.get("strict") is not None:
            function["strict"] = given["strict"]
        seen.append({"type": "function", "function": function})
    return seen


def tokens(tokenizer, kind, body):
    arguments = dict(body.get("chat_template_kwargs") or {})
    if "reasoning_effort" in body:
        arguments.setdefault("enable_thinking", body["reasoning_effort"] != "none")
        arguments["reasoning_effort"] = body["reasoning_effort"]
    seen = seen_messages(body["messages"], kind in PARTS)
    return tokenizer.apply_chat_template(
        without_developers(seen, tokenizer.chat_template),
        tools=seen_tools(body.get("tools")),
        documents=body.get("documents"),
        add_generation_prompt=body.get("add_generation_prompt", True),
        continue_final_message=body.get("continue_final_message", False),
        tokenize=True,
        return_dict=False,
        **arguments,
    )


def stop_the_clock():
    class Stopped(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.fromtimestamp(NOW, timezone.utc).replace(tzinfo=None)

    chat_template_utils.datetime = Stopped


def every_character():
    """All characters, in lines of their neighbours: which class each one is in decides where words end."""
    lines = []
    for start in range(0, 0xE0200, 64):
        # Ideographs, syllables and characters for private use are each like their neighbours.
        alike = 0x3400 <= start < 0xD800 or 0xE000 <= start < 0xF900 or 0x20000 <= start < 0xE0000
        if 0xD800 <= start < 0xE000 or alike and start % 2048:
            continue
        letters = [chr(code) for code in range(start, start + 64)]
        lines.append(" ".join("a" + letter + "b" for letter in letters) + "".join(letters))
    return lines


def main():
    (folder,) = sys.argv[1:]
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        kind = json.load(file)["model_type"]
    stop_the_clock()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    special = sorted(token.content for token in tokenizer.added_tokens_decoder.values() if "unused" not in token.content)
    generator = Generator(special[:40], 7)
    for index in range(CONVERSATIONS):
        body = generator.body(index)
        answer = {"body": body}
        try:
            answer["tokens"] = tokens(tokenizer, kind, body)
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps(answer))
    for line in every_character():
        print(json.dumps({"text": line, "tokens": tokenizer(line, add_special_tokens=True)["input_ids"]}))


if __name__ == "__main__":
    main()
