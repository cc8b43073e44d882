"""Can a client tell `homing mock` from a real vLLM?

    conformance.py --engines DIR --homing BINARY --result FILE --page FILE [--logs DIR] [--real FILE]

The same questions are put to both, in one order; the structures of answers, streams, metrics and event messages are compared
(`shape.py` says what a structure is), and every difference is written down. Each must have a reason in `reasons.py`; one
without makes this fail. `--real FILE` keeps what the real engine answered, and uses it in place of an engine if it is there.
"""

import argparse
import json
import os
import shlex
import sys

import probes
import stream
from engines import Ports, Setup, Vllm
from homing import Service
from reasons import reason
from shape import differences

REAL, MOCK = Ports(8300, 8301, 8302), Ports(8310, 8311, 8312)
CACHE_TOKENS, MAX_TOKENS = 2048, 1024
# Places of one reason that the page names.
SHOWN = 8
UNCOMPARED = [
    "- Texts of answers and of errors, ids, and times. Which tokens an answer has is content.",
    "- Chat templates: the model of this comparison has the one that the mock uses for every model. Its prompts with tools differ.",
    "- Log probabilities of prompts, structured output, audio, beam search: the mock has none of them.",
    "- How two equal prompts of one request are spread over steps: a real vLLM told of them in two messages, the mock in one. A",
    "  difference of timing, it seems; it was not pursued.",
    "- The tokens of a tool's arguments: they are written, not generated, so the blocks of such an answer hold other tokens.",
    "- The dialect of SGLang: this comparison is with vLLM only.",
]


class Generating(Vllm):
    """vLLM with what the probes need besides: tools, adapters that come and go."""

    def environment(self):
        return {**super().environment(), "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}

    def command(self):
        return [*super().command(), "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--max-loras", "4"]


class Embedding(Vllm):
    """vLLM that makes embeddings and nothing else."""

    def command(self):
        kept = super().command()
        del kept[kept.index("--kv-events-config") :]
        return [*kept, "--runner", "pooling", "--convert", "embed"]


def record(ports, adapter_dir):
    """Everything that one engine that generates answers."""
    recorder = stream.Recorder(ports.events_endpoint)
    if not recorder.connected.wait(20):
        raise TimeoutError(f"no publisher at {ports.events_endpoint}")
    port, kept = ports.http, {"answers": {}, "errors": {}}
    for name, *rest in probes.PROBES:
        kept["answers"][name] = guarded(port, name, *rest, adapter_dir)
    for name, *rest in probes.ERRORS:
        kept["errors"][name] = guarded(port, name, *rest, adapter_dir)
    kept["metrics"] = probes.metrics(port)
    newest = settled(recorder, ports)
    kept["first number"] = probes.sequence(recorder.messages[0])
    before = len(recorder.messages)
    probes.provoke(port)
    newest = settled(recorder, ports)
    kept["event messages"] = probes.tell(recorder.messages[before:])
    kept["replays"] = probes.replays(ports.replay_endpoint, newest)
    recorder.close()
    return kept


def guarded(port, name, *rest):
    try:
        return probes.probe(port, name, *rest)
    except OSError as error:
        return {"status": f"no answer: {type(error).__name__}"}


def settled(recorder, ports):
    """The number of the newest message, once it was heard."""
    newest = stream.newest_sequence(ports.replay_endpoint)
    recorder.wait_for(lambda messages: messages and probes.sequence(messages[-1]) >= newest)
    return newest


def real(options):
    if options.real and os.path.exists(options.real):
        with open(options.real, encoding="utf-8") as file:
            return json.load(file)
    setup = lambda **more: Setup.under(
        options.engines, "vllm", options.logs, REAL, cache_tokens=CACHE_TOKENS, max_tokens=MAX_TOKENS, **more
    )
    engine = Generating(setup(adapter="toy"))
    engine.start()
    try:
        version = engine.version()
        kept = record(REAL, engine.setup.adapter_dir)
    finally:
        engine.kill()
    engine = Embedding(setup())
    engine.start()
    try:
        kept["embeddings"] = embeddings(REAL.http)
    finally:
        engine.kill()
    kept = {"version": version, "kept": kept}
    if options.real:
        with open(options.real, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
    return kept


def embeddings(port):
    return {name: guarded(port, name, *rest) for name, *rest in probes.EMBEDDINGS}


def mock(options):
    arguments = [
        *("mock", "--port", str(MOCK.http), "--model", probes.MODEL, "--block-size", str(probes.BLOCK)),
        *("--blocks", str(CACHE_TOKENS // probes.BLOCK), "--mock-max-model-len", str(MAX_TOKENS)),
        *("--events", MOCK.events_endpoint, "--replay", MOCK.replay_endpoint, "--speedup", "10"),
        *("--tokenizer", os.path.join(options.engines, "model", "base")),
    ]
    adapter_dir = os.path.join(options.engines, "model", "adapter")
    service = Service(options.homing, arguments, MOCK.http, os.path.join(options.logs, "homing-mock.log"))
    try:
        # The real engine is given this one on its command line.
        body = {"lora_name": "toy", "lora_path": adapter_dir}
        probes.ask(MOCK.http, "POST", "/v1/load_lora_adapter", body, "")
        kept = record(MOCK, adapter_dir)
        kept["embeddings"] = embeddings(MOCK.http)
        return kept
    finally:
        service.stop()


def page(result):
    lines = [
        "# Where does the mock differ from vLLM?",
        "",
        f"`homing mock` and a real vLLM {result['vllm']} were asked the same {result['questions']} questions, and their metrics,",
        "event messages and replays were compared: statuses, types of content, keys and types of JSON, streams event by event,",
        "counts of tokens, names, types and labels of metrics, every field of every event message. Written by",
        "`e2e/run conformance`; in `e2e/results/conformance.json` are all places. What is not listed here is equal.",
        "",
    ]
    for why, found in result["differences"].items():
        lines += [f"## {why}", ""]
        for one in found[:SHOWN]:
            left, right = (one[key] if len(one[key]) <= 60 else one[key][:57] + "..." for key in ("vllm", "mock"))
            lines.append(f"- {one['where']}: vLLM `{left}`, mock `{right}`")
        if len(found) > SHOWN:
            lines.append(f"- and {len(found) - SHOWN} more")
        lines.append("")
    lines += ["## What was not compared", "", *UNCOMPARED, ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--engines", required=True)
    parser.add_argument("--homing", type=shlex.split, required=True)
    parser.add_argument("--homing-version", default="unknown")
    parser.add_argument("--result", required=True)
    parser.add_argument("--page", required=True)
    parser.add_argument("--logs", default="/tmp")
    parser.add_argument("--real")
    options = parser.parse_args()
    os.makedirs(options.logs, exist_ok=True)
    theirs = real(options)
    ours = mock(options)
    found = differences(theirs["kept"], ours)
    by_reason, unexplained = {}, []
    for where, left, right in found:
        why = reason(where)
        if why is None:
            unexplained.append((where, left, right))
        else:
            by_reason.setdefault(why, []).append({"where": where, "vllm": left, "mock": right})
    questions = sum(len(part) for part in (probes.PROBES, probes.ERRORS, probes.EMBEDDINGS))
    result = {
        "vllm": theirs["version"],
        "homing": options.homing_version,
        "questions": questions,
        "event messages": len(theirs["kept"]["event messages"]),
        "differences": dict(sorted(by_reason.items())),
        "without a reason": [{"where": where, "vllm": left, "mock": right} for where, left, right in unexplained],
    }
    with open(options.result, "w", encoding="utf-8") as out:
        json.dump(result, out, indent=1)
        out.write("\n")
    with open(options.page, "w", encoding="utf-8") as out:
        out.write(page(result))
    for where, left, right in unexplained:
        print(f"{where}\n    vLLM {left}\n    mock {right}")
    explained = sum(len(one) for one in by_reason.values())
    print(f"conformance: {questions} questions, {explained} differences with a reason, {len(unexplained)} without")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
