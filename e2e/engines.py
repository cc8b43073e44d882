"""How is a real engine started, asked, cleared and killed?

One class per engine, with the same verbs, so that the checks do not know which one they talk to. An engine runs in a
process group of its own, listens on loopback, and is stopped by the ids of the processes that were started here.

vLLM's event socket is given as `tcp://*`, because it would connect instead of bind otherwise; it is the only socket that
is not on loopback, so run this on a machine whose ports nobody else can reach.
"""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

import stream

MODEL = "tiny"
# Alone it takes less than a minute; on a machine that does something else, ten times as long.
START_LIMIT_S = 900.0
REQUEST_LIMIT_S = 120.0


@dataclass(frozen=True)
class Reply:
    """What an engine says about one request."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Ports:
    http: int
    events: int
    replay: int

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http}"

    @property
    def events_endpoint(self):
        return f"tcp://127.0.0.1:{self.events}"

    @property
    def replay_endpoint(self):
        return f"tcp://127.0.0.1:{self.replay}"


@dataclass
class Setup:
    """Where an engine lies and how large its cache and its replay buffer are to be."""

    venv: str
    model_dir: str
    log_dir: str
    ports: Ports
    cache_tokens: int = 2048
    max_tokens: int = 1024
    replay_batches: int = 10_000
    adapter: str | None = None
    adapter_dir: str = ""
    # Where others fetch KV, if it hands KV over.
    kv_port: int | None = None

    @classmethod
    def under(cls, folder, engine, log_dir, ports, **sizes):
        """The setup of an engine that `run` installed under `folder`."""
        return cls(
            venv=os.path.join(folder, engine, "venv"),
            model_dir=os.path.join(folder, "model", "base"),
            adapter_dir=os.path.join(folder, "model", "adapter"),
            log_dir=log_dir,
            ports=ports,
            **sizes,
        )


class Engine:
    """What both engines share: the process, its sockets, and HTTP."""

    name = ""
    dialect = ""
    block_size = 0

    def __init__(self, setup):
        self.setup = setup
        self.ports = setup.ports
        self.starts = 0
        self._heard = 0
        self._process = None
        self._log = None

    def start(self):
        """Starts the engine and waits until it answers."""
        self.starts += 1
        self._heard = 0
        log_path = os.path.join(self.setup.log_dir, f"{self.name}-{self.ports.http}-{self.starts}.log")
        self._log = open(log_path, "wb")
        environment = {**os.environ, **self.environment()}
        self._process = subprocess.Popen(
            self.command(), env=environment, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )
        deadline = time.monotonic() + START_LIMIT_S
        while not self.answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended while starting, see {log_path}")
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"{self.name} did not answer within {START_LIMIT_S} s, see {log_path}")
            time.sleep(0.25)

    def kill(self):
        """Ends all processes of the engine at once, as a crash would, and waits until its ports are free again."""
        if self._process is None:
            return
        group = self._process.pid
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        deadline = time.monotonic() + 30.0
        while _group_lives(group):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes of {self.name} are still there 30 s after the kill")
            time.sleep(0.05)
        self._process = None
        self._log.close()

    def answers(self):
        try:
            self.http("GET", self.ready_path)
            return True
        except (OSError, EngineError):
            return False

    def http(self, method, path, body=None):
        """The decoded answer to a request; text where it is not JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.ports.url + path, data=data, method=method, headers={"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_LIMIT_S) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise EngineError(f"{method} {path}: {error.code} {error.read().decode()[:500]}") from error
        try:
            return json.loads(text)
        except ValueError:
            return text

    def send(self, prompt):
        """Sends a request and says how much of its prompt was cached. Both engines take the same body."""
        body = {"model": prompt.adapter or MODEL, "max_tokens": prompt.output_tokens, "temperature": 0, "ignore_eos": True}
        if prompt.salt is not None:
            body["cache_salt"] = prompt.salt
        if prompt.messages:
            answer = self.http("POST", "/v1/chat/completions", {**body, "messages": list(prompt.messages)})
        else:
            answer = self.http("POST", "/v1/completions", {**body, "prompt": list(prompt.tokens)})
        usage = answer["usage"]
        # Present only with --enable-prompt-tokens-details (vLLM) or --enable-cache-report (SGLang).
        return Reply(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])

    def newest_sequence(self):
        """The number of the engine's newest batch once all that was done so far has been published, or None.

        An engine hands its events to a thread which alternates between answering one replay and publishing one batch. Two
        answers in a row that agree therefore mean that nothing was waiting between them.
        """
        self.finish_step()
        before = stream.newest_sequence(self.ports.replay_endpoint, self._heard)
        while True:
            newest = stream.newest_sequence(self.ports.replay_endpoint, self._heard)
            if newest == before:
                self._heard = newest or 0
                return newest
            before = newest

    def finish_step(self):
        """Returns when the step that answered the last request has handed over its events."""

    def events_config(self):
        return {
            "publisher": "zmq",
            "replay_endpoint": self.ports.replay_endpoint,
            "topic": "kv-events",
            "buffer_steps": self.setup.replay_batches,
        }


class EngineError(Exception):
    """The engine answered with an HTTP error."""


class Vllm(Engine):
    name = "vllm"
    dialect = "vllm"
    block_size = 32
    ready_path = "/health"

    def environment(self):
        return {
            **self.transfer_environment(),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            # Gives /reset_prefix_cache.
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def command(self):
        # One of the blocks is vLLM's null block and never holds anything.
        blocks = self.setup.cache_tokens // self.block_size + 1
        endpoint = f"tcp://*:{self.ports.events}"
        events = {"enable_kv_cache_events": True, "endpoint": endpoint, **self.events_config()}
        return [
            os.path.join(self.setup.venv, "bin", "python"),
            *("-W", "ignore", "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", self.setup.model_dir, "--served-model-name", MODEL),
            *("--host", "127.0.0.1", "--port", str(self.ports.http)),
            *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
            *("--max-model-len", str(self.setup.max_tokens), "--block-size", str(self.block_size)),
            *("--num-gpu-blocks-override", str(blocks)),
            *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
            *("--kv-events-config", json.dumps(events)),
            *self.adapter_flags(),
            *self.transfer_flags(),
        ]

    def transfer_environment(self):
        if self.setup.kv_port is None:
            return {}
        return {
            "UCX_TLS": "tcp,shm,self",
            "UCX_NET_DEVICES": "lo",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.setup.kv_port),
        }

    def transfer_flags(self):
        if self.setup.kv_port is None:
            return []
        connector = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
        return ["--kv-transfer-config", json.dumps(connector)]

    def adapter_flags(self):
        if self.setup.adapter is None:
            return []
        module = f"{self.setup.adapter}={self.setup.adapter_dir}"
        return ["--enable-lora", "--max-lora-rank", "8", "--lora-modules", module]

    def version(self):
        return self.http("GET", "/version")["version"]

    def tokens_of(self, messages):
        """The token ids of a chat, as the engine itself makes them."""
        body = {"model": MODEL, "messages": list(messages), "add_generation_prompt": True}
        return self.http("POST", "/tokenize", body)["tokens"]

    def clear(self):
        """Empties the cache. vLLM tells of it with its next step only, so the caller must send something."""
        self.http("POST", "/reset_prefix_cache")


class Sglang(Engine):
    name = "sglang"
    dialect = "sglang"
    block_size = 16
    ready_path = "/health"

    def environment(self):
        stub = os.path.join(self.setup.venv, "stub")
        library_path = os.environ.get("LD_LIBRARY_PATH")
        return {
            "SGLANG_USE_CPU_ENGINE": "1",
            # Its kernel package links to libcuda; the installer puts a library there that says there is no device.
            "LD_LIBRARY_PATH": f"{stub}:{library_path}" if library_path else stub,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def command(self):
        events = {"endpoint": self.ports.events_endpoint, "bind": True, **self.events_config()}
        return [
            os.path.join(self.setup.venv, "bin", "python"),
            *("-W", "ignore", "-m", "sglang.launch_server"),
            *("--model-path", self.setup.model_dir, "--served-model-name", MODEL),
            *("--host", "127.0.0.1", "--port", str(self.ports.http)),
            *("--device", "cpu", "--attention-backend", "torch_native", "--disable-overlap-schedule"),
            *("--load-format", "dummy", "--dtype", "float32"),
            *("--context-length", str(self.setup.max_tokens), "--page-size", str(self.block_size)),
            *("--max-total-tokens", str(self.setup.cache_tokens)),
            "--enable-cache-report",
            *("--kv-events-config", json.dumps(events)),
        ]

    def version(self):
        return self.http("GET", "/server_info")["version"]

    def finish_step(self):
        """SGLang answers first and hands over events later, at the latest when it finds itself idle. A question to its
        scheduler is answered at the beginning of a round, so that after the second one a whole round has passed."""
        for _ in range(2):
            self.http("GET", "/server_info")

    def tokens_of(self, messages):
        """The token ids of a chat, as the engine itself makes them. Without more fields it renders as for a completion."""
        return self.http("POST", "/tokenize", {"model": MODEL, "messages": list(messages)})["tokens"]

    def clear(self):
        """Empties the cache; the event comes at once. It is refused while a request runs."""
        self.http("POST", "/flush_cache")


ENGINES = {engine.name: engine for engine in (Vllm, Sglang)}


def _group_lives(group):
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False
