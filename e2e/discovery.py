"""Is it learnt from real engines what they are and how busy they are?

    discovery.py ENGINE --engines DIR --probe BINARY --result FILE [--logs DIR]

Starts an engine whose setup is known, asks it with the example `probe` of `homing-discovery`, and compares what was learnt with how
it was started: idle, and while it computes an answer. Writes down what was learnt and what was not.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import urllib.error

from engines import ENGINES, EngineError, MODEL, Ports, Setup

PORTS = Ports(http=8210, events=8211, replay=8212)
CACHE_TOKENS = 2048


def ask(probe):
    answer = subprocess.run([*probe, PORTS.url], capture_output=True, text=True, timeout=120)
    if answer.returncode != 0:
        raise RuntimeError(f"the probe failed: {answer.stderr}")
    return json.loads(answer.stdout)


def expected(engine):
    """What an engine that was started by `engines.py` must be found to be."""
    facts = {
        "dialect": engine.dialect,
        "version": engine.version(),
        "block_size": engine.block_size,
        "ranks": 1,
        "prefix_caching": "on",
        "events": {"events": PORTS.events_endpoint, "replay": PORTS.replay_endpoint, "topic": "kv-events"},
    }
    # vLLM counts its null block as well.
    facts["blocks"] = CACHE_TOKENS // engine.block_size + (1 if engine.name == "vllm" else 0)
    if engine.name == "sglang":
        facts["reports_cached"] = "on"
    return facts


def busy(engine, probe):
    """What is said while an answer is computed."""

    def generate():
        body = {"model": MODEL, "prompt": list(range(100, 164)), "max_tokens": 900, "ignore_eos": True, "temperature": 0}
        try:
            engine.http("POST", "/v1/completions", body)
        except (EngineError, OSError, urllib.error.URLError):
            pass

    running = threading.Thread(target=generate, daemon=True)
    running.start()
    for _ in range(50):
        loads = ask(probe)["loads"]
        if loads[0]["running"] > 0:
            return loads
        if not running.is_alive():
            break
    raise RuntimeError("the request was over before it was seen")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("--engines", required=True)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--logs", default="/tmp")
    options = parser.parse_args()
    os.makedirs(options.logs, exist_ok=True)
    probe = [options.probe]
    setup = Setup.under(options.engines, options.engine, options.logs, PORTS, cache_tokens=CACHE_TOKENS)
    engine = ENGINES[options.engine](setup)
    try:
        engine.start()
        wanted = expected(engine)
        idle = ask(probe)
        loads = busy(engine, probe)
    finally:
        engine.kill()
    facts = idle["facts"]
    wrong = {name: {"wanted": value, "learnt": facts[name]} for name, value in wanted.items() if facts[name] != value}
    if facts["models"][0]["name"] != MODEL or facts["models"][0]["max_len"] != setup.max_tokens:
        wrong["models"] = facts["models"]
    if idle["ping"] != "answered":
        wrong["ping"] = idle["ping"]
    if idle["loads"][0]["running"] != 0 or loads[0]["running"] < 1 or loads[0]["used_blocks"] < 1:
        wrong["loads"] = {"idle": idle["loads"], "busy": loads}
    result = {"engine": options.engine, "learnt": idle, "loads_when_busy": loads, "wrong": wrong}
    with open(options.result, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    print(json.dumps(result, indent=2))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
