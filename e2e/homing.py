"""How are `homing index` and `homing agent` started and asked? All that is known here of their interface is in this file.

Waiting is polling for a condition with a limit; the last state seen is in the error.
"""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from engines import MODEL

WAIT_LIMIT_S = 60.0
POLL_S = 0.02


@dataclass(frozen=True)
class Answer:
    """What the index knows of one rank for one prompt."""

    device_blocks: int
    state: str
    complete: bool
    settled: bool


class Service:
    """A process of Homing with an HTTP address."""

    def __init__(self, binary, arguments, port, log_path):
        self.url = f"http://127.0.0.1:{port}"
        self._log = open(log_path, "ab")
        self._process = subprocess.Popen([*binary, *arguments], stdout=self._log, stderr=subprocess.STDOUT)
        self._log_path = log_path
        wait_for("its /health", self._healthy)

    def _healthy(self):
        if self._process.poll() is not None:
            raise RuntimeError(f"homing ended with {self._process.returncode}, see {self._log_path}")
        try:
            self.http("GET", "/health")
            return True
        except OSError:
            return False

    def http(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, method=method, headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
        try:
            return json.loads(text)
        except ValueError:
            return text

    def pause(self):
        """Stops the process as it is, so that it hears nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def stop(self):
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Index(Service):
    """`homing index`."""

    def __init__(self, binary, engines, port, log_dir, agent=None):
        workers = [argument for engine in engines for argument in ("--worker", worker(engine, agent))]
        log_path = os.path.join(log_dir, "homing-index.log")
        super().__init__(binary, ["index", *workers, "--index-listen", f"127.0.0.1:{port}"], port, log_path)

    def overlap(self, engine, tokens, salt=None, adapter=None):
        body = {"model": MODEL, "tokens": list(tokens), "adapter": adapter, "salt": salt}
        answer = self.http("POST", "/v1/overlap", body)
        if answer["block_size"] != engine.block_size:
            raise ValueError(f"the index uses blocks of {answer['block_size']} tokens, the engine of {engine.block_size}")
        for rank in answer["ranks"]:
            if same_worker(rank["worker"], engine):
                return Answer(rank["blocks"]["device"], rank["state"], rank["complete"], answer["settled"])
        raise LookupError(f"no rank of {engine.ports.url} in {answer}")

    def rank(self, engine):
        for rank in self.http("GET", "/v1/ranks")["ranks"]:
            if same_worker(rank["worker"], engine):
                return rank
        return None

    def wait_until(self, engine, newest, states):
        """Waits until the rank has applied the engine's batch `newest` and is in one of `states`."""
        seen = None

        def reached():
            nonlocal seen
            seen = self.rank(engine)
            return seen is not None and seen["state"] in states and (newest is None or seen["cursor"] == newest)

        wait_for(f"batch {newest} and state {'/'.join(states)}", reached, lambda: seen)
        return seen

    def wait_state(self, engine, states):
        return self.wait_until(engine, None, states)


class Agent(Service):
    """`homing agent`."""

    def __init__(self, binary, engine, port, log_dir):
        arguments = ["agent", "--worker", worker(engine), "--agent-listen", f"127.0.0.1:{port}"]
        super().__init__(binary, arguments, port, os.path.join(log_dir, "homing-agent.log"))


def worker(engine, agent=None):
    """A worker in the syntax of the command line: listened to by an agent, or directly."""
    if agent is not None:
        source = [f"agent={agent.url}"]
    else:
        source = [f"events={engine.ports.events_endpoint}", f"replay={engine.ports.replay_endpoint}"]
    facts = [f"model={MODEL}", f"block-size={engine.block_size}", f"dialect={engine.dialect}"]
    return ",".join([engine.ports.url, *source, *facts])


def same_worker(name, engine):
    return name.rstrip("/") == engine.ports.url


def wait_for(what, condition, seen=lambda: None, limit_s=WAIT_LIMIT_S):
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {limit_s} s for {what}; last seen: {seen()}")
        time.sleep(POLL_S)
