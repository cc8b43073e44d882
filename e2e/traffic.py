"""What is sent to measure times and cached tokens, and what is kept of the answers?

Requests go to `/v1/completions` as token ids and come back as streams; of each token it is kept when it came. One thread with
an event loop sends all, so that little time is spent outside of the engine.
"""

import asyncio
import json
import random
import time
from collections import deque

BLOCK = 32
MODEL = "tiny"
# The cache of these runs, and the longest text.
BLOCKS, LONGEST, STEP = 256, 1024, 8192


def body(tokens, output):
    return {
        **{"model": MODEL, "prompt": tokens, "max_tokens": output, "ignore_eos": True, "temperature": 0, "stream": True},
        **{"stream_options": {"include_usage": True}, "return_token_ids": True},
    }


async def send(port, tokens, output):
    """Sends one prompt. Returns when it was sent, when each token came (seconds), its tokens, and how many were cached."""
    data = json.dumps(body(tokens, output)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    sent = time.monotonic()
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + data)
    came, answer, cached = [], [], None
    status = (await reader.readline()).split()
    if len(status) < 2 or status[1] != b"200":
        raise RuntimeError(f"{status}: {(await reader.read())[:300]}")
    while line := await reader.readline():
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        now = time.monotonic()
        event = json.loads(line[6:])
        for choice in event.get("choices", ()):
            ids = choice.get("token_ids") or []
            came += [now] * len(ids)
            answer += ids
        if event.get("usage"):
            cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    writer.close()
    if len(answer) != output or cached is None:
        raise RuntimeError(f"{len(answer)} of {output} tokens came")
    return {"sent": sent, "came": came, "answer": answer, "cached": cached, "prompt": len(tokens)}


def sessions(seed=3, count=24, turns=4):
    """What each turn of each session adds; several sessions begin with the same system prompt."""
    chance = random.Random(seed)
    fresh = lambda tokens: [chance.randrange(1_000, 90_000) for _ in range(tokens)]
    systems = [fresh(length) for length in (96, 128, 150)]
    return [
        [(systems[number % 3] if turn == 0 else []) + fresh(chance.randrange(50, 130)) for turn in range(turns)]
        for number in range(count)
    ]


async def converse(port, concurrency, output=8):
    """Runs `sessions`, at most so many requests at once. A session's next turn comes behind the turns of all others, so that
    its beginning may be gone. Returns for each turn of each session the cached tokens."""
    waiting = deque((number, 0, []) for number in range(len(sessions())))
    plan, cached = sessions(), {}

    async def client():
        while waiting:
            number, turn, before = waiting.popleft()
            prompt = before + plan[number][turn]
            got = await send(port, prompt, output)
            cached[f"{number}/{turn}"] = {"prompt": len(prompt), "cached": got["cached"]}
            if turn + 1 < len(plan[number]):
                waiting.append((number, turn + 1, prompt + got["answer"]))

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return cached


def arrivals(seed, count, rate):
    """An open-loop plan: when, which family of prompts, how many tokens of its beginning, how many new ones, how many answered.

    A third of the requests begins as one of few families does; lengths vary, so that steps of all kinds are seen."""
    chance = random.Random(seed)
    now, plan = 0.0, []
    for number in range(count):
        now += chance.expovariate(rate)
        shared = chance.choice((64, 128, 192)) if chance.random() < 0.35 else 0
        plan.append(
            {
                **{"at": now, "family": chance.randrange(6), "shared": shared, "own": f"{seed}/{number}"},
                **{"new": chance.randrange(32, 480), "output": chance.randrange(4, 29)},
            }
        )
    return plan


def prompt_of(one):
    """The tokens of a planned request."""
    family, own = random.Random(f"family {one['family']}"), random.Random(f"own {one['own']}")
    beginning = [family.randrange(1_000, 90_000) for _ in range(one["shared"])]
    return beginning + [own.randrange(1_000, 90_000) for _ in range(one["new"])]


async def follow(port, plan):
    """Sends a plan at its times, whatever is still under way."""
    prompts = [prompt_of(one) for one in plan]
    start = time.monotonic() + 0.2

    async def one(number):
        await asyncio.sleep(max(0.0, start + plan[number]["at"] - time.monotonic()))
        got = await send(port, prompts[number], plan[number]["output"])
        late = got["sent"] - start - plan[number]["at"]
        del got["answer"]
        got["came"] = [moment - start for moment in got["came"]]
        return {**got, "sent": got["sent"] - start, "late": late, "new": len(prompts[number]) - got["cached"]}

    return await asyncio.gather(*(one(number) for number in range(len(plan))))


async def alone(port, seed, count):
    """Requests one after the other on an idle engine, as `follow` keeps them."""
    kept = []
    for one in arrivals(seed, count, 1.0):
        [got] = await follow(port, [{**one, "at": 0.0}])
        kept.append(got)
    return kept


async def saturate(port, seed, count, concurrency=8):
    """Requests per second that an engine does with so many under way."""
    waiting = deque(arrivals(seed, count, 1.0))
    start = time.monotonic()

    async def client():
        while waiting:
            one = waiting.popleft()
            await send(port, prompt_of(one), one["output"])

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return count / (time.monotonic() - start)


def trace_lines(plan):
    """The plan as lines of our own request log (docs/traces.md): keys are made up, equal where beginnings are."""
    lines = []
    for one in plan:
        length, keys, parent = one["shared"] + one["new"], "", 0
        for block in range(length // BLOCK):
            whole = (block + 1) * BLOCK <= one["shared"]
            parent = random.Random(f"{parent} {block} {one['family'] if whole else one['own']}").getrandbits(64)
            keys += f"{parent:016x}"
        lines.append(
            json.dumps(
                {
                    **{"homing": 1, "at_us": 1_700_000_000_000_000 + round(one["at"] * 1e6), "prompt": length},
                    **{"output": one["output"], "block": BLOCK, "keys": keys},
                }
            )
        )
    return lines


def quantile(values, share):
    """As the replay's: what this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]
