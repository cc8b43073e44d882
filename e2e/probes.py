"""What is asked of a real vLLM and of the mock, and what is kept of the answers?

Each probe is a request and the name under which the structure of its answer is kept. All probes run one after the other in
one order, so that both engines have the same prompts in their caches, and events can be compared one by one.
"""

import http.client
import json
import re

import stream
from frames import is_end, sequence
from shape import structure

MODEL = "tiny"
BLOCK = 32
LIMIT_S = 120.0
PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string", "maxLength": 4}}, "required": ["where"]},
    },
}
SAY = [{"role": "system", "content": "You are kind."}, {"role": "user", "content": "Say something."}]
PICTURED = [{"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": PICTURE}}]}]


def ids(first, count):
    return list(range(first, first + count))


def completion(**more):
    return {"model": MODEL, "prompt": ids(1000, 40), "max_tokens": 4, "ignore_eos": True, "temperature": 0, **more}


def chat(**more):
    return {"model": MODEL, "messages": SAY, "max_tokens": 4, "ignore_eos": True, "temperature": 0, **more}


def responses(**more):
    return {"model": MODEL, "input": "Say something.", "max_output_tokens": 4, "temperature": 0, **more}


def messages(**more):
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, **more}


COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
STREAM = {"stream": True}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
ALWAYS = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
NAMED = {"type": "function", "function": {"name": "look"}}

# Name, method, path, body. Names that begin with "=" are asked of counts too.
PROBES = [
    ("=completion", "POST", COMPLETIONS, completion()),
    ("=completion again, cached", "POST", COMPLETIONS, completion()),
    ("=completion of two blocks", "POST", COMPLETIONS, completion(prompt=ids(2000, 64))),
    ("=completion of two blocks again", "POST", COMPLETIONS, completion(prompt=ids(2000, 64))),
    ("completion of a text", "POST", COMPLETIONS, completion(prompt="Once upon a time")),
    ("completion of several texts", "POST", COMPLETIONS, completion(prompt=["Once", "upon"])),
    ("=completion of several lists", "POST", COMPLETIONS, completion(prompt=[ids(5, 3), ids(8, 4)])),
    ("=completion, n", "POST", COMPLETIONS, completion(n=2, temperature=1)),
    ("completion, ids", "POST", COMPLETIONS, completion(return_token_ids=True)),
    ("completion, logprobs", "POST", COMPLETIONS, completion(logprobs=2)),
    ("completion, echo", "POST", COMPLETIONS, completion(echo=True, prompt="Once upon")),
    ("completion, stream", "POST", COMPLETIONS, completion(**STREAM)),
    ("=completion, stream, usage", "POST", COMPLETIONS, completion(**USAGE)),
    ("completion, stream, usage always", "POST", COMPLETIONS, completion(**ALWAYS)),
    ("completion, stream, ids", "POST", COMPLETIONS, completion(return_token_ids=True, **STREAM)),
    ("completion, stream, logprobs", "POST", COMPLETIONS, completion(logprobs=1, **STREAM)),
    ("completion, adapter", "POST", COMPLETIONS, completion(model="toy")),
    ("completion, priority 0", "POST", COMPLETIONS, completion(priority=0)),
    ("completion, salt", "POST", COMPLETIONS, completion(cache_salt="tenant", prompt=ids(3000, 70))),
    ("completion, seed and other fields", "POST", COMPLETIONS, completion(seed=5, top_p=0.5, user="me", presence_penalty=0.1)),
    ("chat", "POST", CHAT, chat()),
    ("chat, ids", "POST", CHAT, chat(return_token_ids=True)),
    ("chat, n", "POST", CHAT, chat(n=2, temperature=1)),
    ("chat, logprobs", "POST", CHAT, chat(logprobs=True, top_logprobs=2)),
    ("chat, max_completion_tokens", "POST", CHAT, {**chat(), "max_tokens": None, "max_completion_tokens": 3}),
    ("chat, stream", "POST", CHAT, chat(**STREAM)),
    ("chat, stream, usage", "POST", CHAT, chat(**USAGE)),
    ("chat, stream, usage always", "POST", CHAT, chat(**ALWAYS)),
    ("chat, stream, ids", "POST", CHAT, chat(return_token_ids=True, **STREAM)),
    ("chat, stream, logprobs", "POST", CHAT, chat(logprobs=True, top_logprobs=1, **STREAM)),
    ("chat with tools", "POST", CHAT, chat(tools=[TOOL])),
    ("chat with tools, none", "POST", CHAT, chat(tools=[TOOL], tool_choice="none")),
    ("chat with a named tool", "POST", CHAT, chat(tools=[TOOL], tool_choice=NAMED, max_tokens=64, ignore_eos=False)),
    ("chat with a required tool", "POST", CHAT, chat(tools=[TOOL], tool_choice="required", max_tokens=64, ignore_eos=False)),
    ("chat with a named tool, stream", "POST", CHAT, chat(tools=[TOOL], tool_choice=NAMED, max_tokens=64, ignore_eos=False, **STREAM)),
    ("chat with a picture", "POST", CHAT, chat(messages=PICTURED)),
    ("responses", "POST", "/v1/responses", responses()),
    ("responses of messages", "POST", "/v1/responses", responses(input=SAY, instructions="Be kind.")),
    ("responses, stream", "POST", "/v1/responses", responses(**STREAM)),
    ("messages", "POST", "/v1/messages", messages()),
    ("messages, system", "POST", "/v1/messages", messages(system="Be kind.")),
    ("messages, stream", "POST", "/v1/messages", messages(**STREAM)),
    ("tokenize a text", "POST", "/tokenize", {"model": MODEL, "prompt": "Once upon", "return_token_strs": True}),
    ("tokenize a chat", "POST", "/tokenize", {"model": MODEL, "messages": SAY}),
    ("detokenize", "POST", "/detokenize", {"model": MODEL, "tokens": [40, 41, 42]}),
    ("models", "GET", "/v1/models", None),
    ("load adapter", "POST", "/v1/load_lora_adapter", {"lora_name": "second", "lora_path": "{adapter}"}),
    ("models with a second adapter", "GET", "/v1/models", None),
    ("load adapter again", "POST", "/v1/load_lora_adapter", {"lora_name": "second", "lora_path": "{adapter}"}),
    ("unload adapter", "POST", "/v1/unload_lora_adapter", {"lora_name": "second"}),
    ("health", "GET", "/health", None),
    ("ping", "GET", "/ping", None),
    ("ping with POST", "POST", "/ping", None),
    ("version", "GET", "/version", None),
    ("load", "GET", "/load", None),
    ("event sources", "GET", "/kv_event_sources", None),
    ("reset prefix cache", "POST", "/reset_prefix_cache", None),
    ("=completion after a reset", "POST", COMPLETIONS, completion()),
]

ERRORS = [
    ("unknown model", "POST", COMPLETIONS, completion(model="other")),
    ("unknown model in a chat", "POST", CHAT, chat(model="other")),
    ("no prompt", "POST", COMPLETIONS, {"model": MODEL}),
    ("empty text", "POST", COMPLETIONS, completion(prompt="")),
    ("empty list", "POST", COMPLETIONS, completion(prompt=[])),
    ("prompt too long", "POST", COMPLETIONS, completion(prompt=ids(0, 1100))),
    ("answer too long", "POST", COMPLETIONS, completion(max_tokens=4000)),
    ("no answer", "POST", COMPLETIONS, completion(max_tokens=0)),
    ("negative answer", "POST", COMPLETIONS, completion(max_tokens=-1)),
    ("answer of a word", "POST", COMPLETIONS, completion(max_tokens="many")),
    ("n of 0", "POST", COMPLETIONS, completion(n=0)),
    ("token outside the vocabulary", "POST", COMPLETIONS, completion(prompt=[4_000_000])),
    ("negative token", "POST", COMPLETIONS, completion(prompt=[-5])),
    ("empty stop", "POST", COMPLETIONS, completion(stop="")),
    ("stream options without a stream", "POST", COMPLETIONS, completion(stream_options={"include_usage": True})),
    ("temperature below 0", "POST", COMPLETIONS, completion(temperature=-1)),
    ("top_p above 1", "POST", COMPLETIONS, completion(top_p=7)),
    ("no JSON", "POST", COMPLETIONS, "{"),
    ("a list", "POST", COMPLETIONS, "[]"),
    ("empty body", "POST", COMPLETIONS, ""),
    ("no messages", "POST", CHAT, {"model": MODEL}),
    ("empty messages", "POST", CHAT, chat(messages=[])),
    ("message without a role", "POST", CHAT, chat(messages=[{"content": "x"}])),
    ("message that is a text", "POST", CHAT, chat(messages=["x"])),
    ("unknown tool", "POST", CHAT, chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}})),
    ("tool choice without tools", "POST", CHAT, chat(tool_choice=NAMED)),
    ("too many top logprobs", "POST", CHAT, chat(logprobs=True, top_logprobs=200)),
    ("no input of a response", "POST", "/v1/responses", {"model": MODEL}),
    ("unknown response", "GET", "/v1/responses/resp_x", None),
    ("messages of an unknown model", "POST", "/v1/messages", messages(model="other")),
    ("messages without a length", "POST", "/v1/messages", {"model": MODEL, "messages": SAY}),
    ("messages without messages", "POST", "/v1/messages", {"model": MODEL, "max_tokens": 4}),
    ("tokenize nothing", "POST", "/tokenize", {"model": MODEL}),
    ("tokenize for an unknown model", "POST", "/tokenize", {"model": "other", "prompt": "x"}),
    ("detokenize nothing", "POST", "/detokenize", {"model": MODEL}),
    ("adapter without a name", "POST", "/v1/load_lora_adapter", {}),
    ("adapter with an empty name", "POST", "/v1/load_lora_adapter", {"lora_name": "", "lora_path": "{adapter}"}),
    ("adapter that is not there", "POST", "/v1/load_lora_adapter", {"lora_name": "third", "lora_path": "/nowhere/at/all"}),
    ("unload an unknown adapter", "POST", "/v1/unload_lora_adapter", {"lora_name": "other"}),
    ("unload without a name", "POST", "/v1/unload_lora_adapter", {}),
    ("nowhere", "GET", "/nowhere", None),
    ("wrong method", "GET", COMPLETIONS, None),
]

EMBEDDINGS = [
    ("embedding of a text", "POST", "/v1/embeddings", {"model": MODEL, "input": "Once"}),
    ("=embedding of tokens", "POST", "/v1/embeddings", {"model": MODEL, "input": ids(10, 5)}),
    ("embeddings of texts", "POST", "/v1/embeddings", {"model": MODEL, "input": ["Once", "upon"]}),
    ("=embeddings of lists", "POST", "/v1/embeddings", {"model": MODEL, "input": [ids(1, 4), ids(5, 4)]}),
    ("embedding in base64", "POST", "/v1/embeddings", {"model": MODEL, "input": "Once", "encoding_format": "base64"}),
    ("embedding of nothing", "POST", "/v1/embeddings", {"model": MODEL}),
    ("embedding for an unknown model", "POST", "/v1/embeddings", {"model": "other", "input": "Once"}),
]


def ask(port, method, path, body, adapter_dir):
    """Status, type of content, headers that matter and the text of an answer."""
    if body is None:
        data = None
    else:
        data = body if isinstance(body, str) else json.dumps(body).replace("{adapter}", adapter_dir)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, path, body=data, headers={"content-type": "application/json"})
        answer = connection.getresponse()
        kind = (answer.getheader("content-type") or "none").replace(" ", "")
        return answer.status, kind, answer.read().decode()
    finally:
        connection.close()


def probe(port, name, method, path, body, adapter_dir=""):
    """What is kept of one answer."""
    status, kind, text = ask(port, method, path, body, adapter_dir)
    kept = {"status": status, "content-type": kind}
    counts = name.startswith("=")
    if kind.startswith("text/event-stream"):
        kept["events"] = _events(text, counts)
    elif kind.startswith("application/json"):
        kept["body"] = structure(json.loads(text), counts) if text else {"(all)": ["empty"]}
    else:
        kept["text"] = "empty" if not text else "some"
    return kept


def _events(text, counts):
    """The events of a stream; those with one structure in a row are kept once."""
    kept = []
    for block in text.split("\n\n"):
        if not block:
            continue
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = fields.pop("data", "")
        event = {**fields, "data": data if data == "[DONE]" else structure(json.loads(data), counts)}
        if not kept or kept[-1] != event:
            kept.append(event)
    return kept


def metrics(port):
    """Names, types and names of labels of all series."""
    _, kind, text = ask(port, "GET", "/metrics", None, "")
    families, labels = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, what = line.split()
            families[name] = what
        elif line and not line.startswith("#"):
            found = re.match(r"([A-Za-z_:0-9]+)(?:\{(.*)\})? ", line)
            names = sorted(set(re.findall(r"([A-Za-z_0-9]+)=\"", found.group(2) or "")))
            labels[found.group(1)] = names
    return {"content-type": kind.split(";")[0], "families": families, "labels": labels}


# What is sent for the sake of its events, in this order, to an empty cache of 64 blocks.
TOLD = [
    completion(prompt=ids(1000, 40)),
    completion(prompt=ids(1000, 40)),
    completion(prompt=ids(2000, 64)),
    completion(prompt=ids(2000, 64)),
    completion(prompt=ids(2000, 100)),
    completion(prompt=ids(3000, 70), model="toy"),
    completion(prompt=ids(3000, 70), cache_salt="tenant"),
    completion(prompt=ids(3000, 70), cache_salt="tenant", model="toy"),
    completion(prompt=ids(5000, 40), max_tokens=70),
    "/reset_prefix_cache",
    *(completion(prompt=ids(20_000 + 1_000 * place, 512), max_tokens=1) for place in (0, 1, 2, 3, 4, 5, 0, 1)),
    completion(prompt=ids(30_000, 20), max_tokens=100),
    # Prompts that leave a block half full behind.
    *(completion(prompt=ids(40_000 + 1_000 * place, 500), max_tokens=2) for place in (0, 1, 2, 3, 4, 5, 0, 1)),
]


def provoke(port):
    """Sends what is in `TOLD`, after emptying the cache."""
    for body in ["/reset_prefix_cache", *TOLD]:
        if isinstance(body, str):
            ask(port, "POST", body, None, "")
        else:
            ask(port, "POST", COMPLETIONS, body, "")


def tell(messages):
    """Frames, topic, numbers from the first on, and payloads in which hashes are named by their first appearance."""
    names, kept = {}, []
    for frames in messages:
        ts, events, *rest = stream.batch(frames)
        kept.append(
            {
                "frames": len(frames),
                "topic": frames[0].decode(),
                "number": sequence(frames) - sequence(messages[0]),
                "ts": type(ts).__name__,
                "after events": [repr(one) for one in rest],
                "events": [_event(event, names) for event in events],
            }
        )
    return kept


def _event(event, names):
    if isinstance(event, list):
        return [_field(str(place), field, names) for place, field in enumerate(event)]
    return {name: _field(name, field, names) for name, field in event.items()}


def _field(name, field, names):
    if name == "block_hashes":
        return [_hash(one, names) for one in field]
    if name == "parent_block_hash":
        return _hash(field, names)
    if name == "token_ids":
        # Tokens of answers are content.
        return f"{len(field)} tokens"
    return repr(field)


def _hash(value, names):
    if value is None:
        return "none"
    kind = "bytes" if isinstance(value, bytes) else "number"
    return f"{kind} {names.setdefault(value, len(names))}"


def replays(endpoint, newest):
    """What replays of the last messages and from beyond the end bring."""
    kept = {}
    for name, start in (("of the last", newest), ("of the last four", newest - 3), ("from beyond the end", 1 << 40)):
        answers = stream.replay(endpoint, start)
        kept[name] = {
            "frames": sorted({len(frames) for frames in answers[:-1]}),
            "topics": sorted({frames[-3].decode() for frames in answers[:-1] if len(frames) > 2}),
            "numbers": [sequence(frames) - newest for frames in answers[:-1]],
            "end": [frame.hex() for frame in answers[-1]],
            "ends": is_end(answers[-1]),
        }
    return kept
