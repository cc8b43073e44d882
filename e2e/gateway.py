"""What does `homing serve` do in front of two real vLLM servers?

    gateway.py --engines DIR --homing BINARY --result FILE [--logs DIR] [--parts PART,..]

Of parts that are not run, what was found the last time is kept.

1. *cache*: the same conversations through each router, with empty caches before each. How much of the prompts came from a cache is
   what vLLM's own counters say, summed over both servers. Homing's predictions are compared with what vLLM reports of every request.
2. *clients*: the real `openai` and `anthropic` clients, streaming and not, through Homing and directly: the same words.
3. *kill*: streams through Homing while one of the servers is killed. Each must go on elsewhere, and be the text that an undisturbed
   server gives.
4. *dynamo*: the conversations of the first part through Dynamo's frontend, if it is installed. Its workers are vLLM as Dynamo starts
   it, in the version that it was made for.

**Invariant:** nothing is retried by clients, so whatever fails is seen.
"""

import argparse
import asyncio
import datetime
import json
import os
import re
import shlex
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai
from openai import AsyncOpenAI

import conversations
import routers
from engines import MODEL, Ports, Setup, Vllm

# Of the servers and of routers: others than those of the other checks, which may run beside this one.
ENGINES, PORT = 8240, 8320
# Two servers' caches together hold all conversations, one does not: it matters which server holds which.
CACHE_TOKENS, MAX_TOKENS = 14_336, 2048
HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
KILLED_STREAMS, KILLED_TOKENS = 12, 160
DYNAMO = "dynamo frontend, kv, its own workers"


class Run:
    """The servers and what was found."""

    def __init__(self, options):
        self.options = options
        self.engines = []
        self.found, self.wrong = earlier(options.result), []

    def start(self):
        for place in range(2):
            ports = Ports(*(ENGINES + 10 * place + i for i in range(3)))
            sizes = {"cache_tokens": CACHE_TOKENS, "max_tokens": MAX_TOKENS}
            self.engines.append(Vllm(Setup.under(self.options.engines, "vllm", self.options.logs, ports, **sizes)))
        with ThreadPoolExecutor() as both:
            list(both.map(lambda engine: engine.start(), self.engines))

    def stop(self):
        for engine in self.engines:
            engine.kill()

    def check(self, what, holds):
        self.found["checks"][what] = bool(holds)
        if not holds:
            self.wrong.append(what)

    def clear(self):
        """Empties both caches. vLLM tells of it with its next step, so something is asked of each."""
        for engine in self.engines:
            engine.clear()
            engine.http("POST", "/v1/completions", {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 1})

    def counters(self):
        return {name: sum(metric(engine.ports.url, name) for engine in self.engines) for name in (HITS, QUERIES)}

    def homing(self, policy="time", view="events"):
        model = os.path.join(self.options.engines, "model", "base")
        return routers.Homing(self.options.homing, self.engines, PORT, self.options.logs, model, policy, view)

    def contenders(self):
        """Each with a name and how it is started. What is not installed is left out, with the reason."""
        yield "homing", lambda: self.homing()
        yield "homing, caches guessed", lambda: self.homing(view="approximate")
        yield "homing, round robin", lambda: self.homing(policy="round-robin")
        venv = os.path.join(self.options.engines, "vllm-router", "venv")
        for policy in ("cache_aware", "round_robin"):
            yield (
                f"vllm-router, {policy}",
                lambda policy=policy: routers.vllm_router(venv, self.engines, PORT, self.options.logs, policy),
            )

    def cache(self):
        rows, plan = [], conversations.plan()
        for name, start in self.contenders():
            self.clear()
            try:
                router = start()
            except (OSError, RuntimeError, TimeoutError) as error:
                rows.append({"router": name, "not_run": str(error)})
                continue
            try:
                row = measured(name, router.url, plan, self.counters)
                if isinstance(router, routers.Homing):
                    row["truth"] = router.truth()
                    if name == "homing":
                        self.found["differing_requests"] = differing(router.decisions())
            finally:
                router.stop()
            rows.append(row)
            print("gateway:", json.dumps(row), flush=True)
        rows += [row for row in self.found.get("cache", []) if row["router"] == DYNAMO]
        self.found["cache"] = rows
        self.compare()

    def dynamo(self):
        """The same conversations through Dynamo's frontend, whose workers are its own; ours end before they start."""
        self.stop()
        sizes = {"cache_tokens": CACHE_TOKENS, "max_tokens": MAX_TOKENS, "block_size": Vllm.block_size}
        try:
            router = routers.Dynamo(self.options.engines, PORT + 100, self.options.logs, **sizes)
        except (OSError, RuntimeError, TimeoutError) as error:
            row = {"router": DYNAMO, "not_run": str(error)}
        else:
            try:
                count = lambda: {name: sum(metric(url, name) for url in router.metrics()) for name in (HITS, QUERIES)}
                row = measured(DYNAMO, router.url, conversations.plan(), count)
            finally:
                router.stop()
        print("gateway:", json.dumps(row), flush=True)
        self.found["cache"] = [other for other in self.found.get("cache", []) if other["router"] != DYNAMO] + [row]

    def compare(self):
        rows = self.found["cache"]
        by_name = {row["router"]: row for row in rows if "cached_share" in row}
        ours = by_name["homing"]
        truth = ours["truth"]
        self.check("at least 99% of predictions are exact", (truth["equal_share"] or 0) >= 0.99)
        self.check("no prompt is counted otherwise than by vLLM", truth["drifted_prompts"] == 0)
        self.check("every prompt is counted", truth["counted_prompts"] == ours["requests"])
        for name, row in by_name.items():
            self.check(f"more comes from caches than with {name}", name == "homing" or ours["cached_share"] > row["cached_share"])

    def clients(self):
        router = self.homing()
        direct = self.engines[0].ports.url
        try:
            answers = {}
            for name, ask in CLIENTS.items():
                straight = ask(direct)
                try:
                    through = ask(router.url)
                except (openai.OpenAIError, anthropic.AnthropicError) as error:
                    through = f"{type(error).__name__}: {error}"
                answers[name] = {"same": through == straight, "characters": len(straight)}
                if through != straight:
                    answers[name] |= {"direct": straight, "through": through}
                self.check(f"{name}: the same words through Homing", through == straight and through)
            self.found["clients"] = answers
            print("gateway:", json.dumps(answers), flush=True)
        finally:
            router.stop()

    def kill(self):
        prompts = [f"Tell the story number {number} of {number * 7} travellers." for number in range(KILLED_STREAMS)]
        expected = asyncio.run(streams(self.engines[0].ports.url, prompts, lambda: None))
        again = asyncio.run(streams(self.engines[1].ports.url, prompts, lambda: None))
        router = self.homing()
        try:
            undisturbed = asyncio.run(streams(router.url, prompts, lambda: None))
            got = asyncio.run(streams(router.url, prompts, self.engines[0].kill))
            decisions = router.decisions(KILLED_STREAMS)
            moved = sum(len(decision["tries"]) > 1 for decision in decisions)
            self.engines[0].start()
            began = time.monotonic()
            while any(worker["health"] != "up" for worker in router.fleet()["workers"]):
                if time.monotonic() - began > 120:
                    raise TimeoutError(f"the killed server does not come back: {router.fleet()}")
                time.sleep(0.1)
            back = asyncio.run(streams(router.url, prompts[:2], lambda: None))
        finally:
            router.stop()
        count = lambda pairs: sum(one == other and not isinstance(one, Exception) for one, other in pairs)
        self.found["kill"] = {
            "streams": KILLED_STREAMS,
            "tokens_each": KILLED_TOKENS,
            "moved": moved,
            "broken": [str(text) for text in got if isinstance(text, Exception)],
            "equal_to_undisturbed": count(zip(got, expected)),
            "equal_between_servers": count(zip(again, expected)),
            "equal_through_homing": count(zip(undisturbed, expected)),
            "answered_after_restart": count(zip(back, back)),
        }
        print("gateway:", json.dumps(self.found["kill"]), flush=True)
        self.check("some streams were at the killed server", moved > 0)
        self.check("no stream breaks", not self.found["kill"]["broken"])
        self.check("each is the undisturbed text", self.found["kill"]["equal_to_undisturbed"] == KILLED_STREAMS)
        self.check("the server takes requests again", self.found["kill"]["answered_after_restart"] == 2)


def earlier(path):
    """What an earlier run found."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        found = {}
    kept = {key: found[key] for key in ("vllm", "cache", "differing_requests", "clients", "kill") if key in found}
    return {**kept, "checks": found.get("checks", {})}


def measured(name, url, plan, counters):
    """Lets all conversations run through a router: what clients saw, and what the servers' own counters say."""
    before = counters()
    row = {"router": name, **asyncio.run(conversations.converse(url, plan))}
    after = counters()
    row["prompt_tokens"] = round(after[QUERIES] - before[QUERIES])
    row["cached_tokens"] = round(after[HITS] - before[HITS])
    row["cached_share"] = round(row["cached_tokens"] / row["prompt_tokens"], 4)
    return row


def differing(decisions):
    """Requests whose tokens were counted or whose cached tokens were predicted otherwise, with what is known of them."""
    found = []
    for decision in decisions:
        predicted = decision["tries"][-1]["predicted_cached_tokens"] if decision["tries"] else None
        counted = decision["prompt_tokens"] == decision["engine_prompt_tokens"]
        if predicted != decision["cached_tokens"] or not counted:
            keys = ("prompt_tokens", "engine_prompt_tokens", "cached_tokens", "tokens_from", "unknown", "end")
            found.append({"predicted": predicted, **{key: decision[key] for key in keys}})
    return found[:20]


def metric(url, name):
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


async def streams(url, prompts, when_all_speak):
    """All prompts at once as streamed chats. When half of each has come, something happens. Texts, or errors."""
    speaking, happened = set(), []
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120.0) as client:

        async def one(number):
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": prompts[number]}],
                max_tokens=KILLED_TOKENS,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            text = ""
            async for piece in stream:
                for choice in piece.choices:
                    text += choice.delta.content or ""
                speaking.add(number)
                if len(speaking) == len(prompts) and not happened:
                    happened.append(True)
                    await asyncio.to_thread(when_all_speak)
            return text

        return await asyncio.gather(*(one(number) for number in range(len(prompts))), return_exceptions=True)


def with_openai(url, stream):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    chat = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Say something."}],
        max_tokens=24,
        temperature=0,
        stream=stream,
    )
    if not stream:
        return chat.choices[0].message.content
    return "".join(choice.delta.content or "" for piece in chat for choice in piece.choices)


def with_completions(url, stream):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    answer = client.completions.create(
        model=MODEL, prompt=list(range(5000, 5070)), max_tokens=24, temperature=0, stream=stream
    )
    if not stream:
        return answer.choices[0].text
    return "".join(choice.text for piece in answer for choice in piece.choices)


def with_responses(url, stream):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    options = {"model": MODEL, "input": "Say something.", "max_output_tokens": 24, "temperature": 0}
    if not stream:
        return client.responses.create(**options).output_text
    events = client.responses.create(**options, stream=True)
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def with_anthropic(url, stream):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    options = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Say something."}],
        "max_tokens": 24,
        "extra_body": {"temperature": 0},
    }
    if not stream:
        return "".join(part.text for part in client.messages.create(**options).content if part.type == "text")
    with client.messages.stream(**options) as events:
        return "".join(events.text_stream)


CLIENTS = {
    "openai, chat": lambda url: with_openai(url, False),
    "openai, chat, streamed": lambda url: with_openai(url, True),
    "openai, completion": lambda url: with_completions(url, False),
    "openai, completion, streamed": lambda url: with_completions(url, True),
    "openai, response": lambda url: with_responses(url, False),
    "openai, response, streamed": lambda url: with_responses(url, True),
    "anthropic, message": lambda url: with_anthropic(url, False),
    "anthropic, message, streamed": lambda url: with_anthropic(url, True),
}


def write(run):
    """Writes what was found so far, so that a part that fails takes none of the others with it."""
    result = {
        "date": datetime.date.today().isoformat(),
        "homing": run.options.homing_version,
        "servers": 2,
        "cache_tokens_each": CACHE_TOKENS,
        "conversations": {"count": conversations.SESSIONS, "turns": conversations.TURNS, "at_once": conversations.CONCURRENCY},
        **run.found,
        "wrong": [what for what, holds in run.found["checks"].items() if not holds],
    }
    with open(run.options.result, "w", encoding="utf-8") as out:
        json.dump(result, out, indent=1)
        out.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--engines", required=True)
    parser.add_argument("--homing", type=shlex.split, required=True)
    parser.add_argument("--homing-version", default="unknown")
    parser.add_argument("--result", required=True)
    parser.add_argument("--logs", default="/tmp")
    parser.add_argument("--parts", default="cache,clients,kill,dynamo")
    options = parser.parse_args()
    os.makedirs(options.logs, exist_ok=True)
    run = Run(options)
    try:
        parts = options.parts.split(",")
        # Dynamo has servers of its own.
        if parts != ["dynamo"]:
            run.start()
            run.found["vllm"] = run.engines[0].version()
            # A server that never told of its cache is waited for until it does.
            run.clear()
        for part in parts:
            getattr(run, part)()
            write(run)
    finally:
        run.stop()
    print(json.dumps({"wrong": run.wrong}))
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
