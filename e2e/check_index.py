"""Does `homing index` know what a real engine has cached?

    check_index.py ENGINE --engines DIR --homing BINARY --result FILE [--logs DIR] [--seed N] [--parts PART,..]

Before each request the index is asked how many leading blocks the engine holds; then the request is sent and the engine
says how many tokens it took from its cache. Phases bring about what goes wrong in practice: evictions, a cleared cache,
restarts of either side, a replay buffer that is too short, an agent in between, two engines at once.

**Invariant:** the index is asked only after it has reached the engine's newest batch, which the engine's replay socket
names. So a difference is an error and not a delay.

**Invariant:** an answer must be `live` and complete and then equals what the engine does; or `warming` and is then never
above it. Which of the two is expected is said by the phase, not taken from the answer.
"""

import argparse
import datetime
import json
import os
import random
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import stream
from compare import Claim, compare
from engines import ENGINES, Ports, Setup
from homing import Agent, Index
from prompts import Prompt, Prompts

ADAPTERS = {"vllm": "toy"}
INDEX_PORT, AGENT_PORT = 7500, 7600
STATES = {Claim.EXACT: ("live",), Claim.LOWER_BOUND: ("warming",)}
SHORT_REPLAY = 8
AT_ONCE = 3
CACHE_TOKENS, MAX_TOKENS = 2048, 800


class Run:
    """The engines, Homing, and what was found."""

    def __init__(self, options):
        self.options = options
        self.engine_class = ENGINES[options.engine]
        self.adapter = ADAPTERS.get(options.engine)
        self.prompts = Prompts(options.seed, self.engine_class.block_size, MAX_TOKENS, self.adapter)
        self.rng = random.Random(options.seed)
        self.phases = []
        self.phase = None
        self.engines, self.recorders = [], []
        self.index = self.agent = None
        self.version = None

    def start_engine(self, place=0, replay_batches=10_000, before_ready=lambda engine: None):
        """Starts an engine. `before_ready` is called with it while it is still starting."""
        ports = Ports(*(8200 + 10 * place + i for i in range(3)))
        setup = Setup.under(
            self.options.engines,
            self.options.engine,
            self.options.logs,
            ports,
            cache_tokens=CACHE_TOKENS,
            replay_batches=replay_batches,
            adapter=self.adapter,
        )
        engine = self.engine_class(setup)
        self.engines.append(engine)
        self.recorders.append(stream.Recorder(ports.events_endpoint))
        before_ready(engine)
        engine.start()
        self.version = engine.version()
        self.first_batch(engine)
        return engine

    def first_batch(self, engine):
        """Makes an engine that has just begun publish its first batch. Before it there is nothing to be sure about."""
        engine.send(Prompt("first", tuple(range(5000, 5000 + 2 * engine.block_size))))

    def start_index(self, *engines, agent=None):
        self.index = Index(self.options.homing, engines, INDEX_PORT, self.options.logs, agent)

    def stop_index(self):
        if self.index is not None:
            self.index.stop()
            self.index = None

    def send(self, engine, count):
        for prompt in self.prompts.take(count):
            engine.send(prompt)

    def send_at_once(self, engine, count):
        """Sends prompts, several at a time: they share steps, compete for room, and equal ones are computed twice."""
        prompts = self.prompts.take(count)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for each in (pool.map(engine.send, prompts), pool.map(engine.send, [prompts[0]] * AT_ONCE)):
                list(each)

    def check(self, engine, count, claim=Claim.EXACT, bystanders=()):
        for prompt in self.prompts.take(count):
            self.check_one(engine, prompt, claim, bystanders)

    def check_one(self, engine, prompt, claim, bystanders=()):
        tokens = engine.tokens_of(prompt.messages) if prompt.messages else prompt.tokens
        for each in (engine, *bystanders):
            self.index.wait_until(each, each.newest_sequence(), STATES[claim])
        answer = self.index.overlap(engine, tokens, prompt.salt, prompt.adapter)
        reply = engine.send(prompt)
        if reply.prompt_tokens != len(tokens):
            self.problem(f"{prompt.name}: asked about {len(tokens)} tokens, the engine saw {reply.prompt_tokens}")
        if answer.state not in STATES[claim] or answer.complete != (claim is Claim.EXACT) or not answer.settled:
            self.problem(f"{prompt.name}: expected a view that is {claim.value}, got {answer}")
        self.phase["comparisons"].append(compare(prompt.name, claim, answer, reply, engine.block_size))

    def clear(self, engine):
        """Empties the engine's cache and sends something, because vLLM tells of it with its next step only."""
        engine.clear()
        self.first_batch(engine)

    def problem(self, text):
        self.phase["problems"].append(text)

    def require(self, holds, text):
        if not holds:
            self.problem(text)

    @contextmanager
    def of_phase(self, name):
        began, heard = time.monotonic(), [len(recorder.messages) for recorder in self.recorders]
        self.phase = {"name": name, "comparisons": [], "problems": [], "notes": {}}
        print(f"{name} ...", flush=True)
        try:
            yield self.phase
        except Exception as error:
            self.problem(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.phase["notes"]["events"] = self.events_since(heard)
            self.phase["notes"]["seconds"] = round(time.monotonic() - began, 1)
            self.phases.append(self.phase)
            bad = [c for c in self.phase["comparisons"] if not c.agrees]
            print(f"    {len(self.phase['comparisons'])} compared, {len(bad)} differ, {self.phase['notes']}", flush=True)
            for text in [*map(str, bad), *self.phase["problems"]]:
                print(f"    ! {text}", flush=True)

    def events_since(self, heard):
        """How many events of each kind the engines published since then."""
        counts = {}
        heard = heard + [0] * (len(self.recorders) - len(heard))
        for recorder, start in zip(self.recorders, heard):
            for frames in recorder.messages[start:]:
                for event in stream.batch(frames)[1]:
                    counts[event["type"]] = counts.get(event["type"], 0) + 1
        return counts

    def end_engines(self):
        self.stop_index()
        if self.agent is not None:
            self.agent.stop()
            self.agent = None
        for recorder in self.recorders:
            recorder.close()
        for engine in self.engines:
            engine.kill()
        self.engines, self.recorders = [], []


def one_engine(run):
    """One engine whose replay buffer covers all that it ever said."""
    with run.of_phase("shared prefixes"):
        engine = run.start_engine()
        run.start_index(engine)
        run.check(engine, 40)
    with run.of_phase("evictions") as phase:
        run.check(engine, 60)
        run.require(run.events_since([0]).get("BlockRemoved"), "nothing was evicted")
        run.require(any(c.cached for c in phase["comparisons"]), "nothing was ever cached")
    with run.of_phase("copies of a block"):
        check_copies(run, engine)
    with run.of_phase("requests at the same time"):
        for _ in range(3):
            run.send_at_once(engine, 12)
            run.check(engine, 8)
    with run.of_phase("cache cleared"):
        run.clear(engine)
        run.check(engine, 25)
    with run.of_phase("homing stopped and started"):
        run.stop_index()
        run.send(engine, 10)
        run.start_index(engine)
        run.check(engine, 25)
    with run.of_phase("engine killed and restarted") as phase:
        engine.kill()
        phase["notes"]["state while down"] = run.index.wait_state(engine, ("stale", "repairing", "warming"))["state"]
        engine.start()
        run.first_batch(engine)
        run.check(engine, 25)
    with run.of_phase("engine replaced while homing did not look") as phase:
        cursor = run.index.rank(engine)["cursor"]
        run.index.pause()
        engine.kill()
        engine.start()
        run.first_batch(engine)
        while engine.newest_sequence() <= cursor + 5:
            run.send(engine, 1)
        phase["notes"]["cursor before"] = cursor
        phase["notes"]["newest when it looks again"] = engine.newest_sequence()
        run.index.resume()
        run.check(engine, 25)


def check_copies(run, engine):
    """Makes the engine hold a block several times and lose some of the copies, which is no loss to the prompt.

    vLLM computes the last block of a wholly cached prompt again and keeps both. The longer prompt uses one of them, so that
    the others grow old and go. SGLang has no copies; the same prompts must do no harm.
    """
    whole = run.prompts.fresh(4 * engine.block_size)
    longer = Prompt("longer by one", whole + run.prompts.fresh(1))
    for _ in range(8):
        for _copy in range(2):
            engine.send(Prompt("whole blocks", whole))
        run.check_one(engine, longer, Claim.EXACT)
        for _filler in range(4):
            engine.send(Prompt("filler", run.prompts.fresh(CACHE_TOKENS // 8)))
        run.check_one(engine, longer, Claim.EXACT)


def short_replay(run):
    """One engine whose replay buffer is short, and an agent that heard it from the start."""
    with run.of_phase("replay buffer too short") as phase:

        def start_agent(engine):
            run.agent = Agent(run.options.homing, engine, AGENT_PORT, run.options.logs)

        engine = run.start_engine(replay_batches=SHORT_REPLAY, before_ready=start_agent)
        run.send(engine, 40)
        run.require(engine.newest_sequence() > 2 * SHORT_REPLAY, "the buffer was long enough after all")
        run.start_index(engine)
        run.check(engine, 20, Claim.LOWER_BOUND)
        run.require(any(c.expected_cached < c.cached for c in phase["comparisons"]), "nothing was missed after all")
    with run.of_phase("agent in between"):
        run.stop_index()
        run.start_index(engine, agent=run.agent)
        run.check(engine, 25)
    with run.of_phase("agent in between, homing stopped and started"):
        run.stop_index()
        run.send(engine, 3 * SHORT_REPLAY)
        run.start_index(engine, agent=run.agent)
        run.check(engine, 25)
    with run.of_phase("replay buffer too short, then the cache cleared"):
        run.stop_index()
        run.start_index(engine)
        run.check(engine, 3, Claim.LOWER_BOUND)
        run.clear(engine)
        run.check(engine, 20)


def two_engines(run):
    with run.of_phase("two engines"):
        first, second = run.start_engine(place=0), run.start_engine(place=1)
        run.start_index(first, second)
        for prompt in run.prompts.take(40):
            engine, other = run.rng.sample((first, second), 2)
            run.check_one(engine, prompt, Claim.EXACT, bystanders=[other])


PARTS = {"one-engine": one_engine, "short-replay": short_replay, "two-engines": two_engines}


def report(run):
    comparisons = [c for phase in run.phases for c in phase["comparisons"]]
    return {
        "engine": run.options.engine,
        "engine_version": run.version,
        "homing_version": run.options.homing_version,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "seed": run.options.seed,
        "block_size": run.engine_class.block_size,
        "cache_tokens": CACHE_TOKENS,
        "adapter": run.adapter,
        "parts": run.options.parts,
        "compared": len(comparisons),
        "compared_as_exact": sum(c.claim == Claim.EXACT.value for c in comparisons),
        "with_cached_tokens": sum(c.cached > 0 for c in comparisons),
        "mismatches": sum(not c.agrees for c in comparisons),
        "problems": sum(len(phase["problems"]) for phase in run.phases),
        "phases": [{**phase, "comparisons": [c.row() for c in phase["comparisons"]]} for phase in run.phases],
    }


def write_report(path, found):
    """JSON with one line per comparison, so that a difference between two runs can be read."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    phases = found.pop("phases")
    text = json.dumps(found, indent=1)[:-2] + ',\n "phases": [\n'
    blocks = []
    for phase in phases:
        rows = ",\n".join("   " + json.dumps(row) for row in phase.pop("comparisons"))
        blocks.append("  " + json.dumps(phase)[:-1] + ', "comparisons": [\n' + rows + "\n  ]}")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text + ",\n".join(blocks) + "\n ]\n}\n")


def arguments():
    parser = argparse.ArgumentParser(description="Compares homing index with a real engine.")
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("--engines", required=True, help="folder with the installed engines and the model")
    parser.add_argument("--homing", required=True, help="the binary, or a command line that behaves like it")
    parser.add_argument("--homing-version", default="unknown")
    parser.add_argument("--result", required=True, help="file to write")
    parser.add_argument("--logs", required=True, help="folder for the output of all processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated, of: " + ", ".join(PARTS))
    options = parser.parse_args()
    options.homing = shlex.split(options.homing)
    options.parts = options.parts.split(",")
    os.makedirs(options.logs, exist_ok=True)
    return options


def main():
    run = Run(arguments())
    for part in run.options.parts:
        try:
            PARTS[part](run)
        except Exception as error:  # The part is over, what it found is in its phase; the other parts are still of use.
            print(f"    {part} ended early: {type(error).__name__}: {error}", flush=True)
        finally:
            run.end_engines()
    found = report(run)
    failed = found["mismatches"] or found["problems"]
    print(f"{found['compared']} compared, {found['mismatches']} mismatches, {found['problems']} problems")
    write_report(run.options.result, found)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
