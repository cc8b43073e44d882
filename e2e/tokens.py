"""Compares our prompts with those of vLLM: the same bodies through vLLM's own code and through the crate `tokenize`.

    tokens.py --tokenizers FOLDER --prompts BINARY --result FILE

No server is started: what vLLM runs before its engine is called directly, with its own classes for bodies, for every
tokenizer of FOLDER and for the endpoints of chats, completions, messages and responses.
"""

import argparse
import asyncio
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parent.parent / "crates/tokenize/tests"))

from oracle import Generator, stop_the_clock  # noqa: E402
from transformers import AutoConfig  # noqa: E402
from vllm import __version__  # noqa: E402
from vllm.config import ModelConfig, VllmConfig  # noqa: E402
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest  # noqa: E402
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages  # noqa: E402
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: E402
from vllm.entrypoints.openai.completion.protocol import CompletionRequest  # noqa: E402
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest  # noqa: E402
from vllm.renderers.online_renderer import OnlineRenderer  # noqa: E402
from vllm.renderers.registry import renderer_from_config  # noqa: E402

CONTEXT = 32768
EACH = 150
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}


class Engine:
    """What vLLM does with a body before its engine sees it."""

    def __init__(self, folder):
        config = ModelConfig(model=str(folder), max_model_len=CONTEXT, dtype="float32", enforce_eager=True)
        renderer = renderer_from_config(VllmConfig(model_config=config))
        self.renderer = OnlineRenderer(
            config,
            renderer,
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
            enable_auto_tools=True,
            tool_parser="hermes",
        )
        self.messages = AnthropicServingMessages.__new__(AnthropicServingMessages)
        self.messages.online_renderer = self.renderer
        self.messages._disabled_thinking_effort = None
        self.merges = AnthropicServingMessages._should_merge_inline_system(self.renderer)

    async def tokens(self, endpoint, body):
        body = json.loads(json.dumps(body))
        if endpoint == "chat":
            answer = await self.renderer.render_chat(ChatCompletionRequest(**body))
        elif endpoint == "messages":
            request = AnthropicMessagesRequest(**body)
            effort = await self.messages._get_disabled_thinking_effort()
            chat = AnthropicServingMessages.to_chat_completion_request(
                request, merge_inline_system=self.merges, disabled_thinking_effort=effort
            )
            answer = await self.renderer.render_chat(chat)
        elif endpoint == "responses":
            answer = await self.renderer.render_responses(ResponsesRequest(**body))
            answer = (None, [answer.engine_input]) if hasattr(answer, "engine_input") else answer
        else:
            answer = await self.renderer.render_completion(CompletionRequest(**body))
            answer = (None, answer) if isinstance(answer, list) else answer
        if not isinstance(answer, tuple):
            raise ValueError(answer.error.message)
        return [list(prompt["prompt_token_ids"]) for prompt in answer[1]]


class Bodies:
    """Bodies as clients send them, and some that they should not."""

    def __init__(self, special, seed):
        self.generator = Generator(special, seed)
        self.random = random.Random(seed)

    def chance(self, probability):
        return self.random.random() < probability

    def make(self, index):
        endpoint = ["chat", "chat", "messages", "responses", "completions"][index % 5]
        return endpoint, getattr(self, endpoint)(index)

    def chat(self, index):
        body = self.generator.body(index)
        messages = body["messages"]
        if self.chance(0.2):
            body["tool_choice"] = self.random.choice(["none", "auto", "required", None])
        if self.chance(0.15):
            body["truncate_prompt_tokens"] = self.random.choice([-1, 0, 5, 100, 20000])
            body["max_tokens"] = self.random.choice([None, 10])
            if self.chance(0.5):
                body["truncation_side"] = self.random.choice(["left", "right"])
        if self.chance(0.15):
            body["add_special_tokens"] = True
        if self.chance(0.15):
            body["chat_template_kwargs"] = {"enable_thinking": self.chance(0.5), "x": "auto", "documents": None}
        if self.chance(0.1):
            messages.insert(self.random.randint(0, len(messages)), {"role": "developer", "content": "dev", "tools": []})
        if self.chance(0.1):
            messages.insert(0, {"role": "system", "content": "x-anthropic-billing-header: cch=1;\nYou are good."})
        if self.chance(0.2):
            part = self.random.choice(
                [
                    {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}},
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "text", "text": None},
                    {"type": "input_text", "text": "in"},
                    {"text": "no type"},
                    {"type": "weird"},
                    "plain",
                ]
            )
            messages[-1]["content"] = [part, {"type": "text", "text": "end"}]
        if self.chance(0.1):
            messages[-1].pop("content", None)
        if self.chance(0.1):
            messages[-1]["content"] = None
        if self.chance(0.1):
            messages[self.random.randrange(len(messages))]["extra"] = {"a": 1}
        for message in messages:
            for call in message.get("tool_calls") or []:
                if self.chance(0.2):
                    call["function"]["arguments"] = self.random.choice(["", "not json", "[1]", '{"b": 1, "a": {"c": []}}'])
                if self.chance(0.2):
                    call["index"] = 0
        return body

    def completions(self, index):
        prompt = self.random.choice(
            [self.generator.text(), [self.generator.text(), self.generator.text()], [1, 2, 3], [[4, 5], [6]], "", None]
        )
        body = {"prompt": prompt}
        if self.chance(0.3):
            body["add_special_tokens"] = self.chance(0.5)
        if self.chance(0.3):
            body["truncate_prompt_tokens"] = self.random.choice([-1, 1, 3, 50])
        if self.chance(0.2):
            body["truncation_side"] = self.random.choice(["left", "right"])
        return body

    def messages(self, index):
        body = {"model": "m", "max_tokens": 10, "messages": []}
        if self.chance(0.5):
            body["system"] = self.random.choice(
                [
                    self.generator.text(),
                    [
                        {"type": "text", "text": "x-anthropic-billing-header: 1"},
                        {"type": "text", "text": self.generator.text(), "cache_control": {"type": "ephemeral"}},
                        {"type": "text", "text": "more"},
                    ],
                ]
            )
        with_tools = self.chance(0.5)
        if with_tools:
            body["tools"] = [
                {"name": "f", "description": "d", "input_schema": {"properties": {"a": {"type": "string"}}}},
                {"input_schema": {"type": "object"}, "name": "g"},
            ]
        if self.chance(0.2):
            body["tool_choice"] = {"type": self.random.choice(["auto", "any", "none"])}
        if self.chance(0.2):
            body["thinking"] = {"type": "disabled"}
        if self.chance(0.2):
            body["output_config"] = {"effort": "high"}
        for turn in range(self.random.choice([1, 3, 5])):
            if turn % 2 == 0:
                content = [{"type": "text", "text": self.generator.text(2) or "u"}]
                if turn and with_tools:
                    result = self.random.choice(["4", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None])
                    content.insert(0, {"type": "tool_result", "tool_use_id": f"t{turn}", "content": result})
                body["messages"].append({"role": "user", "content": content if self.chance(0.6) else self.generator.text(3)})
                if self.chance(0.1):
                    body["messages"].append({"role": "system", "content": "later " + self.generator.text(1)})
            else:
                content = [{"type": "text", "text": self.generator.text(2) or "a"}]
                if self.chance(0.4):
                    content.insert(0, {"type": "thinking", "thinking": self.generator.text(1), "signature": "s"})
                if self.chance(0.2):
                    content.insert(0, {"type": "redacted_thinking", "data": "s"})
                if with_tools:
                    content.append({"type": "tool_use", "id": f"t{turn + 1}", "name": "f", "input": {"b": 1, "a": "é"}})
                body["messages"].append({"role": "assistant", "content": content})
        return body

    def responses(self, index):
        body = {"model": "m", "input": self.generator.text() or "hi"}
        if self.chance(0.5):
            body["instructions"] = self.generator.text(2)
        if self.chance(0.3):
            body["reasoning"] = {"effort": self.random.choice(["none", "low", "high"])}
        if self.chance(0.2):
            body["truncation"] = self.random.choice(["auto", "disabled", None])
        if self.chance(0.4):
            body["tools"] = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "description": "d"}]
        if self.chance(0.7):
            items = [{"role": "user", "content": self.random.choice(["q", [{"type": "input_text", "text": "q1"}]])}]
            if self.chance(0.7):
                if self.chance(0.5):
                    text = [{"type": "reasoning_text", "text": "thought"}]
                    items.append({"type": "reasoning", "id": "r1", "summary": [], "content": text})
                if "tools" in body:
                    items.append({"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'})
                    items.append({"type": "function_call_output", "call_id": "c1", "output": "42"})
                status = self.random.choice(["completed", "in_progress"])
                said = [{"type": "output_text", "text": "answer", "annotations": []}]
                items.append({"type": "message", "id": "m1", "role": "assistant", "status": status, "content": said})
                if status == "completed" or self.chance(0.3):
                    items.append({"type": "message", "role": "user", "content": "and?"})
            body["input"] = items
        return body


def model_folder(tokenizer, work):
    kind = json.loads((tokenizer / "config.json").read_text())["model_type"]
    folder = Path(work) / tokenizer.name
    folder.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).symlink_to((tokenizer / file).resolve())
    config = AutoConfig.for_model(kind).to_dict()
    config.update(architectures=[ARCHITECTURES[kind]], max_position_embeddings=CONTEXT, model_type=kind)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


async def compare(folder, prompts):
    engine = Engine(folder)
    tokenizer = engine.renderer.renderer.get_tokenizer()
    special = sorted(token.content for token in tokenizer.added_tokens_decoder.values() if "unused" not in token.content)
    bodies = Bodies(special[:40], 11)
    asked = [bodies.make(index) for index in range(EACH * 5)]
    lines = "".join(json.dumps({"endpoint": endpoint, "body": body}) + "\n" for endpoint, body in asked)
    command = [prompts, str(folder), str(CONTEXT), "vllm"]
    ours = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    print(folder.name, ours.stderr.strip(), file=sys.stderr)
    counts = collections.defaultdict(collections.Counter)
    for (endpoint, body), line in zip(asked, ours.stdout.splitlines(), strict=True):
        ours_said = json.loads(line)
        try:
            theirs = await engine.tokens(endpoint, body)
        except Exception as error:
            theirs = None
            complaint = f"{type(error).__name__}: {error}"[:200]
        if theirs is None:
            kind = "both refuse" if "error" in ours_said else "only the engine refuses"
        elif "tokens" in ours_said:
            kind = "equal" if ours_said["tokens"] == theirs else "different"
        else:
            kind = "not mirrored" if ours_said["reason"] == "not_mirrored" else "only we refuse"
        counts[endpoint][kind] += 1
        if kind in ("different", "only we refuse"):
            print(json.dumps({"endpoint": endpoint, "kind": kind, "body": body, "ours": ours_said.get("error")})[:1500])
            if theirs and "tokens" in ours_said:
                for one, other in zip(ours_said["tokens"], theirs):
                    print("  ours  ", repr(tokenizer.decode(one))[:600])
                    print("  theirs", repr(tokenizer.decode(other))[:600])
        elif kind == "only the engine refuses" and os.environ.get("TOKENS_VERBOSE"):
            print(endpoint, complaint)
    return {endpoint: dict(sorted(kinds.items())) for endpoint, kinds in sorted(counts.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--tokenizers", "--prompts", "--result"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    stop_the_clock()
    result = {"vllm": __version__, "bodies_each": EACH, "tokenizers": {}}
    with tempfile.TemporaryDirectory() as work:
        for tokenizer in sorted(Path(arguments.tokenizers).iterdir()):
            kind = tokenizer / "config.json"
            if kind.is_file() and json.loads(kind.read_text())["model_type"] in ARCHITECTURES:
                counts = asyncio.run(compare(model_folder(tokenizer, work), arguments.prompts))
                result["tokenizers"][tokenizer.name] = counts
    Path(arguments.result).write_text(json.dumps(result, indent=2) + "\n")
    wrong = sum(
        kinds.get(kind, 0)
        for endpoints in result["tokenizers"].values()
        for kinds in endpoints.values()
        for kind in ("different", "only we refuse")
    )
    print(json.dumps(result, indent=2))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
