"""Does `homing serve` split prompts and answers between two real vLLM servers, and what if the first one dies?

    pd.py --engines DIR --homing BINARY --result FILE [--logs DIR]

Both servers have vLLM's NIXL connector; one is told to be for prompts, the other for answers.

1. *text*: chats and completions, streamed and not, through Homing and directly at one server: the same words; the receipts name both servers.
2. *kill*: the server for prompts is killed at each step of the handover while requests run. Each must be answered with the same words. The
   steps are made by a proxy before that server, which sees what passes.
3. *left*: clients that go away in the middle, and how many of the first server's blocks are held afterwards.

**Invariant:** nothing is retried by clients, so whatever fails is seen.
"""

import argparse
import asyncio
import datetime
import json
import os
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import openai
from openai import AsyncOpenAI

from engines import MODEL, Ports, Setup, Vllm
from gateway import metric
from homing import Service, wait_for
from routers import worker

ENGINES, PORT, PROXY, KV = 8260, 8330, 8339, 15_610
CACHE_TOKENS, MAX_TOKENS = 14_336, 2048
TOKENS, REQUESTS = 24, 4
# How long a server holds what nobody fetches, if it is not told otherwise.
LEASE_S = 30
STEPS = {
    "before": "it is dead when the request comes",
    "during": "it dies while it computes the prompt",
    "lost": "it dies when it has answered, and the answer is lost",
    "staged": "it dies when it has answered, before the other server has fetched anything",
    "answering": "it dies while the other server answers",
}


class Proxy:
    """Passes connections on to the server for prompts, and kills it when a request is at a step."""

    def __init__(self, port, engine):
        self.port, self.engine, self.step = port, engine, None
        self.killing = threading.Lock()
        self.loop = asyncio.new_event_loop()
        self.threads = ThreadPoolExecutor(2)
        self.threads.submit(self.run)

    def run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_server(self.connection, "127.0.0.1", self.port))
        self.loop.run_forever()

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.threads.shutdown(wait=False)

    def take(self, step):
        """Whether it is to happen now; then it does not happen again."""
        now = self.step == step
        if now:
            self.step = None
        return now

    def kill(self):
        with self.killing:
            self.engine.kill()

    async def connection(self, reader, writer):
        try:
            there, here = await asyncio.open_connection("127.0.0.1", self.engine.ports.http)
        except OSError:
            writer.close()
            return
        leg = asyncio.Event()
        ways = [asyncio.create_task(way) for way in (self.forward(reader, here, leg), self.backward(there, writer, leg))]
        # When one side is gone, so is the other.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        here.close()
        writer.close()

    async def forward(self, reader, here, leg):
        while piece := await reader.read(65536):
            if b"do_remote_decode" in piece and self.step:
                leg.set()
            here.write(piece)
            await here.drain()
            if leg.is_set() and self.take("during"):
                await asyncio.to_thread(self.kill)
        here.close()

    async def backward(self, there, writer, leg):
        while piece := await there.read(1 << 20):
            if leg.is_set() and b"kv_transfer_params" in piece and self.take("lost"):
                await asyncio.to_thread(self.kill)
                break
            if leg.is_set() and b"kv_transfer_params" in piece and self.take("staged"):
                await asyncio.to_thread(self.kill)
            writer.write(piece)
            await writer.drain()
        writer.close()


class Homing(Service):
    """`homing serve` before a server for prompts and one for answers."""

    def __init__(self, options, prefill, decode, through):
        workers = [f"{worker(prefill, 'events').replace(prefill.ports.url, through)},role=prefill", f"{worker(decode, 'events')},role=decode"]
        model = os.path.join(options.engines, "model", "base")
        arguments = ["serve", *(part for one in workers for part in ("--worker", one))]
        arguments += ["--serve-listen", f"127.0.0.1:{PORT}", "--serve-admin", f"127.0.0.1:{PORT + 1}", "--serve-tokenizer", model]
        arguments += ["--disagg-when", "always", "--disagg-begin-timeout", "20s"]
        self.admin_url = f"http://127.0.0.1:{PORT + 1}"
        super().__init__(options.homing, arguments, PORT, os.path.join(options.logs, "homing-serve-pd.log"))
        self.wait_workers(2)

    def admin(self, path):
        with urllib.request.urlopen(self.admin_url + path, timeout=10) as answer:
            return json.loads(answer.read())

    def wait_workers(self, count):
        up = lambda: sum(one["health"] == "up" for one in self.admin("/admin/fleet")["workers"]) == count
        wait_for(f"{count} workers", up, lambda: self.admin("/admin/fleet"), limit_s=180)

    def staged(self):
        with urllib.request.urlopen(f"{self.admin_url}/metrics", timeout=10) as answer:
            return [line for line in answer.read().decode().splitlines() if line.startswith(("homing_gateway_staged", "homing_gateway_settled_handoffs"))]

    def legs(self, limit):
        decisions = self.admin(f"/admin/decisions?limit={limit}")["decisions"]
        return [[(leg["leg"], leg["failed"] is None) for leg in decision["tries"]] for decision in decisions]


class Run:
    def __init__(self, options):
        self.options = options
        self.found, self.wrong = {"checks": {}}, []
        sizes = {"cache_tokens": CACHE_TOKENS, "max_tokens": MAX_TOKENS}
        self.prefill, self.decode = (
            Vllm(Setup.under(options.engines, "vllm", options.logs, Ports(*(ENGINES + 10 * place + i for i in range(3))), kv_port=KV + place, **sizes))
            for place in range(2)
        )

    def start(self):
        with ThreadPoolExecutor() as both:
            list(both.map(lambda engine: engine.start(), (self.prefill, self.decode)))
        self.proxy = Proxy(PROXY, self.prefill)
        self.homing = Homing(self.options, self.prefill, self.decode, f"http://127.0.0.1:{PROXY}")

    def stop(self):
        for part in ("homing", "proxy"):
            if hasattr(self, part):
                getattr(self, part).stop()
        self.prefill.kill()
        self.decode.kill()

    def check(self, what, holds):
        self.found["checks"][what] = bool(holds)
        if not holds:
            self.wrong.append(what)

    def meet(self):
        """The servers meet with the first KV that moves. One that computes its first step may answer too late for the other, which then says that it failed."""
        ask = KINDS["completion"]
        for number in range(3):
            ask(self.homing.url, prompt(100 + number))
            if self.homing.legs(1) == [BOTH]:
                break
        self.found["met_after"] = number + 1

    def text(self):
        rows = {}
        for name, ask in KINDS.items():
            straight = [ask(self.decode.ports.url, prompt(number)) for number in range(2)]
            through = [ask(self.homing.url, prompt(number)) for number in range(2)]
            rows[name] = {"same": sum(one == other for one, other in zip(through, straight)), "of": 2, "characters": [len(one) for one in straight]}
            if through != straight:
                rows[name] |= {"direct": straight, "through": through}
            self.check(f"{name}: the same words as of one server", through == straight and all(through))
        legs = self.homing.legs(2 * len(KINDS))
        both = sum(one == BOTH for one in legs)
        self.check("every request was served by both servers", both == 2 * len(KINDS))
        fetched = metric(self.decode.ports.url, "vllm:nixl_num_descriptors_sum") or metric(self.decode.ports.url, "vllm:nixl_bytes_transferred_sum")
        self.found["text"] = {"kinds": rows, "served_by_both": both, "kv_that_moved": fetched}
        print("pd:", json.dumps(self.found["text"]), flush=True)

    def killed(self):
        self.found["kill"] = {}
        for step, words in STEPS.items():
            prompts = [f"{step} {prompt(number)}" for number in range(REQUESTS)]
            expected = asyncio.run(chats(self.decode.ports.url, prompts))
            began = time.monotonic()
            if step == "before":
                self.prefill.kill()
            elif step != "answering":
                self.proxy.step = step
            when = self.prefill.kill if step == "answering" else None
            got = asyncio.run(chats(self.homing.url, prompts, when))
            took = round(time.monotonic() - began, 2)
            same = sum(one == other for one, other in zip(got, expected))
            self.found["kill"][step] = {
                "what": words,
                "requests": REQUESTS,
                "the_same_words": same,
                "took_s": took,
                "legs": self.homing.legs(REQUESTS),
                "failed": [str(one) for one in got if isinstance(one, Exception)],
            }
            print("pd:", step, json.dumps(self.found["kill"][step]), flush=True)
            self.check(f"{words}: the same words", same == REQUESTS)
            self.proxy.step = None
            self.proxy.kill()
            self.prefill.start()
            self.homing.wait_workers(2)
        again = asyncio.run(chats(self.homing.url, [prompt(99)]))
        self.check("afterwards both serve again", not isinstance(again[0], Exception) and self.homing.legs(1)[0][0][0] == "prefill")

    def left(self):
        """Clients that go away after a while, and what both servers hold when everything is over."""

        async def leave():
            async with AsyncOpenAI(base_url=f"{self.homing.url}/v1", api_key="none", max_retries=0, timeout=60.0) as client:
                for number, after in enumerate((0.01, 0.05, 0.1, 0.2, 0.4)):
                    asking = asyncio.create_task(one_chat(client, f"leave {prompt(number)}", 200))
                    await asyncio.sleep(after)
                    asking.cancel()
                    await asyncio.gather(asking, return_exceptions=True)

        asyncio.run(leave())
        usage = lambda: [round(metric(engine.ports.url, "vllm:kv_cache_usage_perc"), 4) for engine in (self.prefill, self.decode)]
        began = time.monotonic()
        # What was staged and not fetched is held, and counted, until its lease ends.
        while (any(usage()) or "homing_gateway_staged_blocks 0" not in self.homing.staged()) and time.monotonic() - began < 2 * LEASE_S:
            time.sleep(0.2)
        held, lines = usage(), self.homing.staged()
        self.found["left"] = {"clients": 5, "usage_of_caches": held, "after_s": round(time.monotonic() - began, 1), "homing": lines}
        print("pd:", json.dumps(self.found["left"]), flush=True)
        self.check("no server holds anything afterwards", held == [0.0, 0.0])
        self.check("Homing counts nothing as staged afterwards", "homing_gateway_staged_blocks 0" in lines)


def prompt(number):
    return f"Story {number}: " + " ".join(f"traveller {number * 31 + place} met {place * 7} others;" for place in range(40))


async def one_chat(client, text, tokens=TOKENS, on_piece=lambda: None):
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": text}], max_tokens=tokens, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    said = ""
    async for piece in stream:
        said += "".join(choice.delta.content or "" for choice in piece.choices)
        await asyncio.to_thread(on_piece)
    return said


async def chats(url, prompts, when_one_speaks=None):
    """All at once. When the first of them speaks, something happens. Texts, or errors."""
    done = []

    def spoke():
        if when_one_speaks and not done:
            done.append(True)
            when_one_speaks()

    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120.0) as client:
        return await asyncio.gather(*(one_chat(client, text, on_piece=spoke) for text in prompts), return_exceptions=True)


def completion(url, text, stream):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    answer = client.completions.create(model=MODEL, prompt=text, max_tokens=TOKENS, temperature=0, stream=stream)
    return "".join(choice.text for piece in answer for choice in piece.choices) if stream else answer.choices[0].text


def chat(url, text, stream):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], max_tokens=TOKENS, temperature=0, stream=stream)
    if stream:
        return "".join(choice.delta.content or "" for piece in answer for choice in piece.choices)
    return answer.choices[0].message.content


BOTH = [("prefill", True), ("decode", True)]
KINDS = {
    "chat": lambda url, text: chat(url, text, False),
    "chat, streamed": lambda url, text: chat(url, text, True),
    "completion": lambda url, text: completion(url, text, False),
    "completion, streamed": lambda url, text: completion(url, text, True),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", required=True)
    parser.add_argument("--homing", required=True, type=lambda text: [text])
    parser.add_argument("--homing-version", default="unknown")
    parser.add_argument("--result", required=True)
    parser.add_argument("--logs", required=True)
    options = parser.parse_args()
    os.makedirs(options.logs, exist_ok=True)
    run = Run(options)
    try:
        run.start()
        run.found |= {"vllm": run.prefill.version(), "homing": options.homing_version, "at": datetime.date.today().isoformat()}
        run.meet()
        run.text()
        run.killed()
        run.left()
    finally:
        run.stop()
    with open(options.result, "w", encoding="utf-8") as file:
        json.dump(run.found, file, indent=2)
        file.write("\n")
    print("pd: wrong:", run.wrong or "nothing")
    sys.exit(bool(run.wrong))


if __name__ == "__main__":
    main()
