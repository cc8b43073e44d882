"""Does the engine model do what a real vLLM does?

    sim.py --engines DIR --homing BINARY --result FILE [--logs DIR] [--real DIR]

1. *Content*: the same requests, one after the other, to a real vLLM with a small cache and to the model (`homing mock`, which is
   `crates/engine` behind sockets); after each, contents, copies and the order of all changes are compared (`content.py`, `watch.py`).
2. *Cached tokens*: the same conversations at 1 to 8 requests at once; what each request had from the cache is compared.
3. *Times*: requests at three loads. A profile is fitted to half of the runs (`fitting.py`); `homing replay` predicts from it, in
   virtual time, the time to the first token of the other half.

`--real DIR` keeps what the real engine did, and uses it in place of an engine if it is there. The result says how much of the
machine's processors others used while times were measured, and by how much two runs of the same requests differ.
"""

import argparse
import asyncio
import json
import os
import shlex
import subprocess
import sys
import time

import content
import fitting
import traffic
import watch
from engines import Ports, Setup, Vllm
from homing import Service

REAL, MOCK = Ports(8300, 8301, 8302), Ports(8310, 8311, 8312)
LOADS = (0.3, 0.6, 0.85)
# Requests of a run, runs of the same requests, and the seeds of the half that is fitted and of the half that is predicted.
COUNT, REPEATS = 100, 2
FITTED, PREDICTED = 11, 12
AGAIN = (2, 4, 8)
GOAL = 0.15
SHARES = {"p50": 0.5, "p90": 0.9}


# The model of the timed runs: large enough that steps take tens of milliseconds and not most of them outside of the model.
SHAPE = {
    **{"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6},
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64},
}


class Stepping(Vllm):
    """vLLM with a given size of its steps."""

    step = 0

    def command(self):
        return [*super().command(), "--max-num-batched-tokens", str(self.step)]


class Timed(Stepping):
    """vLLM with a larger model, computed in the process that schedules: by itself it has a second one and waits for it in
    a loop, which takes a processor from what is measured."""

    def environment(self):
        return {**super().environment(), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}

    def command(self):
        return [*super().command(), "--distributed-executor-backend", "uni", "--hf-overrides", json.dumps(SHAPE)]


def real_engine(options, kind, part):
    tokens = part.BLOCKS * Vllm.block_size
    engine = kind(Setup.under(options.engines, "vllm", options.logs, REAL, cache_tokens=tokens, max_tokens=part.LONGEST))
    engine.step = part.STEP
    engine.start()
    return engine


def mock_engine(options, part, *more):
    arguments = [
        *("mock", "--port", str(MOCK.http), "--model", traffic.MODEL, "--block-size", str(traffic.BLOCK)),
        *("--blocks", str(part.BLOCKS), "--mock-max-model-len", str(part.LONGEST), "--max-batched-tokens", str(part.STEP)),
        *("--events", MOCK.events_endpoint, "--replay", MOCK.replay_endpoint, *more),
    ]
    return Service(options.homing, arguments, MOCK.http, os.path.join(options.logs, "homing-mock-sim.log"))


def kept(options, name, make):
    """What `make` returns, or what it returned when it was last called, if that is to be kept."""
    path = options.real and os.path.join(options.real, f"{name}.json")
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    made = make()
    if path:
        os.makedirs(options.real, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(made, file)
    return made


def real_content(options):
    engine = real_engine(options, Stepping, content)
    try:
        return {"version": engine.version(), **watch.record(REAL)}
    finally:
        engine.kill()


def model_content(options):
    mock = mock_engine(options, content, "--speedup", "20")
    try:
        return watch.record(MOCK)
    finally:
        mock.stop()


def real_times(options):
    engine = real_engine(options, Timed, traffic)
    try:
        warm_up(REAL)
        return times(engine)
    finally:
        engine.kill()


def real_conversations(options):
    engine = real_engine(options, Timed, traffic)
    try:
        warm_up(REAL)
        return twice(REAL)
    finally:
        engine.kill()


def warm_up(ports):
    asyncio.run(traffic.saturate(ports.http, 90, 30))


def conversation(ports, concurrency):
    watch.clear(ports)
    return asyncio.run(traffic.converse(ports.http, concurrency))


def twice(ports):
    """The conversations with 1 to 8 at once, and some of them once more."""
    first = {str(concurrency): conversation(ports, concurrency) for concurrency in range(1, 9)}
    return {"first": first, "again": {str(concurrency): conversation(ports, concurrency) for concurrency in AGAIN}}


def times(engine):
    """Runs at all loads; those of both halves by turns, so that a machine that becomes slower does so for both."""
    port, busy = REAL.http, Busy(engine)
    watch.clear(REAL)
    rate = asyncio.run(traffic.saturate(port, 91, 120, concurrency=16))
    found = {"rate": rate, "alone": [], "runs": []}
    for repeat in range(REPEATS):
        watch.clear(REAL)
        found["alone"].append(asyncio.run(traffic.alone(port, 20 + repeat, 25)))
        for load in LOADS:
            for seed in (FITTED, PREDICTED):
                watch.clear(REAL)
                busy.begin()
                requests = asyncio.run(traffic.follow(port, plan(seed, load, rate)))
                run = {"repeat": repeat, "load": load, "seed": seed, "others": busy.others(), "requests": requests}
                found["runs"].append(run)
                p50, p90 = (traffic.quantile(first_tokens(requests), share) for share in (0.5, 0.9))
                print(f"sim: load {load}, seed {seed}: TTFT p50 {p50:.0f} ms, p90 {p90:.0f} ms, others {run['others']:.2f}", flush=True)
    return found


def plan(seed, load, rate):
    return traffic.arrivals(1_000 * seed + round(load * 100), COUNT, load * rate)


def first_tokens(requests):
    return [(one["came"][0] - one["sent"]) * 1e3 for one in requests]


class Busy:
    """How many processors others than the engine and this script use."""

    def __init__(self, engine):
        self._group = os.getpgid(engine._process.pid)

    def begin(self):
        self._began = self._now()

    def others(self):
        (all_before, own_before, then), (all_now, own_now, now) = self._began, self._now()
        return ((all_now - all_before) - (own_now - own_before)) / max(now - then, 1e-3)

    def _now(self):
        tick = os.sysconf("SC_CLK_TCK")
        with open("/proc/stat", encoding="utf-8") as file:
            used = [int(field) for field in file.readline().split()[1:9]]
        own = sum(os.times()[:2])
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[2]) == self._group:
                own += (int(fields[11]) + int(fields[12])) / tick
        # All but idle and waiting for input and output.
        return (sum(used) - used[3] - used[4]) / tick, own, time.monotonic()


def model_conversations(options, profile_file):
    more = ("--profile-file", profile_file, "--speedup", "1")
    mock = mock_engine(options, traffic, *more)
    try:
        return twice(MOCK)
    finally:
        mock.stop()


def compare_conversations(real, model):
    lines = []
    for concurrency, theirs in real["first"].items():
        ours = model["first"][concurrency]
        line = {"concurrency": int(concurrency), "requests": len(theirs), **_agreement(theirs, ours)}
        line["cached_share"] = {"real": _share(theirs), "model": _share(ours)}
        line["pairs_out_of_turn"] = {"real": _out_of_turn(theirs), "model": _out_of_turn(ours)}
        if int(concurrency) in AGAIN:
            line["real_against_itself"] = _agreement(theirs, real["again"][concurrency])
            line["model_against_itself"] = _agreement(ours, model["again"][concurrency])
            line["cached_share_again"] = {side: _share(one["again"][concurrency]) for side, one in (("real", real), ("model", model))}
        lines.append(line)
    return lines


def _share(talk):
    return round(sum(one["cached"] for one in talk.values()) / sum(one["prompt"] for one in talk.values()), 4)


def _out_of_turn(talk):
    """Pairs of requests that did not end in the order of the plan. It decides who asks next, and so what is evicted."""
    ended = [tuple(map(int, reversed(name.split("/")))) for name in talk]
    return sum(before > after for place, after in enumerate(ended) for before in ended[:place])


def _agreement(left, right):
    off = [abs(one["cached"] - right[name]["cached"]) for name, one in left.items()]
    return {"equal": sum(difference == 0 for difference in off), "mean_difference_tokens": round(sum(off) / len(off), 1)}


def fitted_half(found, loads=LOADS):
    return [run["requests"] for run in found["runs"] if run["seed"] == FITTED and run["load"] in loads]


def fit(options, found, loads=LOADS):
    """A profile of one half, of some loads; written to a file. Returns its coefficients and how well they fit."""
    coefficients, quality = fitting.fit(fitted_half(found, loads), [one for run in found["alone"] for one in run])
    with open(profile_path(options), "w", encoding="utf-8") as file:
        json.dump(fitting.profile(coefficients), file)
    return coefficients, quality


def replayed(options, load, rate, fitted):
    """What `homing replay` says of the half that was not fitted, with the profile that was."""
    coefficients, quality = fitted
    trace = os.path.join(options.logs, f"sim-{load}.jsonl")
    with open(trace, "w", encoding="utf-8") as file:
        file.write("\n".join(traffic.trace_lines(plan(PREDICTED, load, rate))) + "\n")
    # The noise of the replay is even; this one has the spread that was seen.
    noise = min(0.95, 3**0.5 * quality["spread"])
    command = [
        *(*options.homing, "replay", trace, "--workers", "1", "--policy", "round-robin", "--json", "--seeds", "5"),
        *("--profile", profile_path(options), "--block-size", str(traffic.BLOCK), "--blocks", str(traffic.BLOCKS)),
        *("--disparity", f"speed=0,overhead=0ms-0ms,noise={noise:.3f},slow=1", "--start-within", "600s"),
    ]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)["policies"][0]
    outside = coefficients["outside_of_steps"] - fitting.REPLAY_WAY_MS
    return {name: told["ttft_ms"][name] + outside for name in SHARES} | {"cached_share": told["cached_share"]}


def predict(options, found, fitted):
    """Predictions and what was measured, for each load."""
    lines = []
    for load in LOADS:
        runs = [run for run in found["runs"] if run["load"] == load and run["seed"] == PREDICTED]
        requests = [one for run in runs for one in run["requests"]]
        said = replayed(options, load, found["rate"], fitted)
        line = {
            **{"load": load, "rate": round(load * found["rate"], 2), "requests": len(requests)},
            "cached_share": {
                "real": round(sum(one["cached"] for one in requests) / sum(one["prompt"] for one in requests), 4),
                "model": round(said["cached_share"], 4),
            },
            "processors_used_by_others": [round(run["others"], 2) for run in runs],
            "steps_of_real_runs_over_fitted": [round(fitting.pace(run["requests"], fitted[0]), 3) for run in runs],
            "latest_start_ms": round(max(one["late"] for one in requests) * 1e3, 1),
        }
        for name, share in SHARES.items():
            real = traffic.quantile(first_tokens(requests), share)
            each = [traffic.quantile(first_tokens(run["requests"]), share) for run in runs]
            line[name] = {
                "real_ms": round(real, 1),
                "predicted_ms": round(said[name], 1),
                "error": round(said[name] / real - 1, 3),
                "real_runs_ms": [round(one, 1) for one in each],
                "real_runs_apart": round(max(each) / min(each) - 1, 3),
            }
        lines.append(line)
    for line in lines:
        # A machine whose speed changes between the loads is no error of the model; this one knows only the other half of its load.
        said = replayed(options, line["load"], found["rate"], fit(options, found, (line["load"],)))
        for name in SHARES:
            line[name]["error_with_a_profile_of_this_load"] = round(said[name] / line[name]["real_ms"] - 1, 3)
    return lines


def profile_path(options):
    return os.path.join(options.logs, "sim-profile.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--engines", required=True)
    parser.add_argument("--homing", type=shlex.split, required=True)
    parser.add_argument("--homing-version", default="unknown")
    parser.add_argument("--result", required=True)
    parser.add_argument("--logs", default="/tmp")
    parser.add_argument("--real")
    options = parser.parse_args()
    os.makedirs(options.logs, exist_ok=True)
    theirs = kept(options, "content", lambda: real_content(options))
    contents = content.compare(theirs, model_content(options))
    print("sim: content", json.dumps(contents, indent=1), flush=True)
    found = kept(options, "times", lambda: real_times(options))
    talks = kept(options, "conversations", lambda: real_conversations(options))
    fitted = fit(options, found)
    predictions = predict(options, found, fitted)
    coefficients, quality = fit(options, found)
    modelled = model_conversations(options, profile_path(options))
    result = {
        **{"command": "e2e/run sim", "vllm": theirs["version"], "homing": options.homing_version},
        "content": contents,
        "cached_tokens": compare_conversations(talks, modelled),
        "times": {
            "requests_per_s_at_16_at_once": round(found["rate"], 2),
            "fitted_ms": {name: float(f"{value:.4g}") for name, value in coefficients.items()},
            "fit": {name: round(value, 4) for name, value in quality.items()},
            "goal": GOAL,
            "loads": predictions,
        },
    }
    result["met"] = met(result)
    with open(options.result, "w", encoding="utf-8") as out:
        json.dump(result, out, indent=1)
        out.write("\n")
    print(json.dumps({name: result[name] for name in ("cached_tokens", "times", "met")}, indent=1))
    return 0 if all(result["met"].values()) else 1


def met(result):
    """Which goals were reached."""
    alone = result["cached_tokens"][0]
    errors = [abs(line[name]["error"]) for line in result["times"]["loads"] for name in ("p50", "p90")]
    return {
        "content after each sequential request is equal": result["content"]["sequential"]["requests_that_differ"] == 0,
        "cached tokens at one request at once are equal": alone["equal"] == alone["requests"],
        "TTFT p50 and p90 within 15% at three loads": max(errors) <= GOAL,
    }


if __name__ == "__main__":
    sys.exit(main())
