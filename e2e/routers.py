"""What stands between clients and two real engines, and how is it started, asked and stopped?

Each router is a process of its own that listens on loopback. `homing serve` can also be asked what it predicted.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from engines import MODEL, Vllm
from homing import Service, wait_for

START_LIMIT_S = 120.0


class Homing(Service):
    """`homing serve`."""

    def __init__(self, binary, engines, port, log_dir, tokenizer, policy="time", view="events"):
        workers = [argument for engine in engines for argument in ("--worker", worker(engine, view))]
        arguments = [
            *("serve", *workers, "--serve-listen", f"127.0.0.1:{port}", "--serve-admin", f"127.0.0.1:{port + 1}"),
            *("--serve-policy", policy, "--serve-tokenizer", tokenizer),
        ]
        self.admin_url = f"http://127.0.0.1:{port + 1}"
        super().__init__(binary, arguments, port, os.path.join(log_dir, f"homing-serve-{policy}-{view}.log"))
        seen = None

        def ready():
            nonlocal seen
            seen = self.fleet()
            views = [rank["view"] for worker in seen["workers"] for rank in worker["ranks"]]
            # A policy that does not ask what is cached has no views.
            live = view != "events" or policy == "round-robin" or all(state == "live" for state in views)
            return seen["ready"] and len(seen["workers"]) == len(engines) and live

        try:
            wait_for("all workers and their views", ready, lambda: seen)
        except TimeoutError:
            self.stop()
            raise

    def admin(self, path):
        with urllib.request.urlopen(self.admin_url + path, timeout=10) as answer:
            return json.loads(answer.read())

    def fleet(self):
        return self.admin("/admin/fleet")

    def decisions(self, limit=4096):
        return self.admin(f"/admin/decisions?limit={limit}")["decisions"]

    def truth(self):
        """Predictions of cached tokens that were exact, too low or too high, and prompts counted otherwise than the engine."""
        fleet = self.fleet()
        sums = {key: sum(worker["truth"][key] for worker in fleet["workers"]) for key in ("equal", "less", "more", "unsaid")}
        sums["drifted_prompts"] = sum(count["other"] for count in fleet["prompt_counts"])
        sums["counted_prompts"] = sum(count["equal"] for count in fleet["prompt_counts"]) + sums["drifted_prompts"]
        compared = sums["equal"] + sums["less"] + sums["more"]
        sums["equal_share"] = round(sums["equal"] / compared, 4) if compared else None
        return sums


def worker(engine, view):
    """A worker in the syntax of the command line. Its model and block size are for the gateway to find out."""
    if view == "events":
        source = [f"events={engine.ports.events_endpoint}", f"replay={engine.ports.replay_endpoint}"]
    else:
        source = [f"cache-view={view}"]
    return ",".join([engine.ports.url, *source, f"model={MODEL}", f"block-size={engine.block_size}"])


class Process:
    """Another router: a command, and an address that answers when it is ready."""

    def __init__(self, command, port, log_path, environment=None, ready="/v1/models", limit_s=START_LIMIT_S):
        self.url = f"http://127.0.0.1:{port}"
        self._log = open(log_path, "wb")
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + limit_s
        while not self._answers(ready):
            if self._process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {self._process.returncode}, see {log_path}")
            if time.monotonic() > deadline:
                self.stop()
                raise TimeoutError(f"{command[0]} did not answer within {limit_s} s, see {log_path}")
            time.sleep(0.2)

    def _answers(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                body = answer.read().decode()
            return path != "/v1/models" or MODEL in body
        except (OSError, urllib.error.HTTPError):
            return False

    def stop(self):
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(timeout=20)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()


def vllm_router(venv, engines, port, log_dir, policy):
    """vllm-router of the vLLM project, from PyPI."""
    command = [
        *(os.path.join(venv, "bin", "vllm-router"), "--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-port", str(port + 2), "--policy", policy, "--worker-urls"),
        *(engine.ports.url for engine in engines),
    ]
    return Process(command, port, os.path.join(log_dir, f"vllm-router-{policy}.log"))


DYNAMO_FOLDERS = ("dynamo-vllm", "dynamo", "dynamo-deps")


class Dynamo:
    """Dynamo's frontend, which routes by the events of its own workers: vLLM as Dynamo starts it, because it has no way to stand
    before others. They find each other through a folder."""

    def __init__(self, folder, port, log_dir, cache_tokens, max_tokens, block_size, workers=2):
        missing = [name for name in DYNAMO_FOLDERS if not os.path.isdir(os.path.join(folder, name))]
        if missing:
            raise RuntimeError(f"not installed: {', '.join(missing)}")
        self._parts, self._metrics = [], []
        self._kv = tempfile.mkdtemp(prefix="dynamo-kv-")
        self._environment = {
            "PYTHONPATH": os.pathsep.join(os.path.join(folder, name) for name in DYNAMO_FOLDERS),
            "DYN_FILE_KV": self._kv,
            **{name: "127.0.0.1" for name in ("DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST")},
        }
        self._python = os.path.join(folder, "vllm", "venv", "bin", "python")
        model = os.path.join(folder, "model", "base")
        try:
            sizes = (cache_tokens, max_tokens, block_size)
            with ThreadPoolExecutor() as all_at_once:
                start = lambda number: self._worker(number, port, log_dir, model, sizes)
                list(all_at_once.map(start, range(workers)))
            command = [
                *(self._python, "-W", "ignore", "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port)),
                *("--router-mode", "kv", "--kv-cache-block-size", str(block_size)),
                *("--discovery-backend", "file", "--event-plane", "zmq"),
            ]
            frontend = Process(command, port, os.path.join(log_dir, "dynamo-frontend.log"), self._environment)
            self._parts.append(frontend)
            self.url = frontend.url
            wait_for("both workers", lambda: self._reachable() == workers)
        except BaseException:
            self.stop()
            raise

    def _worker(self, number, port, log_dir, model, sizes):
        cache_tokens, max_tokens, block_size = sizes
        system, events = port + 10 + number, port + 20 + number
        config = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{events}"}
        command = [
            *(self._python, "-W", "ignore", "-m", "dynamo.vllm", "--model", model, "--served-model-name", MODEL),
            *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager", "--max-model-len", str(max_tokens)),
            *("--block-size", str(block_size), "--num-gpu-blocks-override", str(cache_tokens // block_size + 1)),
            *("--enable-prefix-caching", "--kv-events-config", json.dumps(config)),
            *("--discovery-backend", "file", "--event-plane", "zmq"),
        ]
        environment = {
            **Vllm.environment(),
            **self._environment,
            "DYN_SYSTEM_HOST": "127.0.0.1",
            "DYN_SYSTEM_PORT": str(system),
        }
        log = os.path.join(log_dir, f"dynamo-worker-{number}.log")
        self._parts.append(Process(command, system, log, environment, ready="/health", limit_s=900.0))
        self._metrics.append(f"http://127.0.0.1:{system}")

    def _reachable(self):
        with urllib.request.urlopen(f"{self.url}/health", timeout=10) as answer:
            health = json.loads(answer.read())
        return sum(instance.get("endpoint") == "generate" for instance in health.get("instances", []))

    def metrics(self):
        """Where each worker's own counters are."""
        return self._metrics

    def stop(self):
        for part in reversed(self._parts):
            part.stop()
        shutil.rmtree(self._kv, ignore_errors=True)
