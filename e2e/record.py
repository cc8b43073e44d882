"""Records what real engines send in situations that are rare or hard to bring about: evictions, replays, restarts.

    python3 record.py ENGINE ENGINES_DIR OUT_DIR     with ENGINE vllm or sglang

Run it with the Python of an engine's environment, which has pyzmq and msgspec. See captures/README.md for what came out.
"""

import os
import random
import sys
import tempfile

import stream
from engines import ENGINES, Ports, Setup
from prompts import Prompt

SEED = 7
BEYOND = 1_000_000
ADAPTERS = {"vllm": "toy"}


def recording(engine, out_dir):
    rng = random.Random(SEED)

    def some(count):
        return tuple(rng.randrange(1000, 100_000) for _ in range(count))

    engine.start()
    name = f"{engine.name}-{engine.version()}"
    endpoint = engine.ports.replay_endpoint
    recorder = stream.Recorder(engine.ports.events_endpoint)
    recorder.connected.wait(10)

    shared = some(200)
    prompts = [Prompt("first", shared[:100], output_tokens=40), Prompt("grown", shared), Prompt("again", shared)]
    prompts += [Prompt("salted", shared, salt="a"), Prompt("salted otherwise", shared, salt="b")]
    if engine.setup.adapter:
        prompts += [Prompt("adapter", shared, adapter=engine.setup.adapter)]
    prompts += [Prompt(f"fill {i}", some(170)) for i in range(10)]
    prompts += [Prompt("evicted by now", shared), Prompt("salted, evicted by now", shared, salt="a")]
    for prompt in prompts:
        engine.send(prompt)
    newest = engine.newest_sequence()
    recorder.wait_for(lambda messages: messages and stream.sequence(messages[-1]) == newest)
    stream.write_capture(os.path.join(out_dir, f"{name}-evict"), recorder.messages)

    answers = []
    for start in (newest - 2, newest, newest + 1, BEYOND):
        answers += stream.replay(endpoint, start)
    stream.write_capture(os.path.join(out_dir, f"{name}-replay"), answers)

    # The subscriber lives on while the engine is killed and comes back: numbers start again from 0, and go past the old
    # ones for prompts that the old incarnation had, so that the bytes differ in little but their time.
    before = len(recorder.messages)
    engine.kill()
    recorder.connected.clear()
    engine.start()
    recorder.connected.wait(10)
    for prompt in prompts[:4]:
        engine.send(prompt)
    engine.clear()
    engine.send(Prompt("after the clear", shared[:64]))
    newest = engine.newest_sequence()
    recorder.wait_for(lambda messages: len(messages) > before and stream.sequence(messages[-1]) == newest)
    stream.write_capture(os.path.join(out_dir, f"{name}-restart"), recorder.messages[before - 3 :])
    recorder.close()


def main(name, engines_dir, out_dir):
    os.makedirs(out_dir, exist_ok=True)
    with tempfile.TemporaryDirectory() as log_dir:
        setup = Setup.under(engines_dir, name, log_dir, Ports(8100, 8101, 8102), adapter=ADAPTERS.get(name))
        engine = ENGINES[name](setup)
        try:
            recording(engine, out_dir)
        finally:
            engine.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
