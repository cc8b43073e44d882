"""What is asked of a fleet, with the real `openai` client? Conversations that grow, and whose turns are mixed with those of others.

What each turn adds is drawn by a seed; what the engine answered becomes part of the next turn.
"""

import asyncio
import random
import time
from collections import deque

from openai import AsyncOpenAI

from engines import MODEL
from prompts import WORDS

# An odd number of sessions, so that taking turns does not send each to the same server by chance.
SESSIONS, TURNS, CONCURRENCY, OUTPUT = 25, 8, 4, 16
SYSTEMS, SYSTEM_WORDS, TURN_WORDS = 3, 90, (60, 100)


def words(chance, count):
    return " ".join(chance.choice(WORDS) for _ in range(count))


def plan(seed=11, sessions=SESSIONS, turns=TURNS):
    """For each session its system prompt and what the user says in each turn."""
    chance = random.Random(seed)
    systems = [words(chance, SYSTEM_WORDS) for _ in range(SYSTEMS)]
    return [
        (systems[number % SYSTEMS], [words(chance, chance.randrange(*TURN_WORDS)) for _ in range(turns)])
        for number in range(sessions)
    ]


async def ask(client, messages, output, usage):
    """One streamed turn: the answer's text, and seconds until its first piece."""
    sent = time.monotonic()
    options = {"stream_options": {"include_usage": True}} if usage else {}
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=messages,
        max_tokens=output,
        temperature=0,
        stream=True,
        extra_body={"ignore_eos": True},
        **options,
    )
    text, first, told = "", None, None
    async for piece in stream:
        if piece.usage is not None:
            told = piece.usage
        for choice in piece.choices:
            if choice.delta.content:
                first = first or time.monotonic() - sent
                text += choice.delta.content
    if usage != (told is not None):
        raise AssertionError(f"usage was {'' if usage else 'not '}asked for, and came as {told}")
    return text, first


async def converse(url, conversations, concurrency=CONCURRENCY, output=OUTPUT):
    """Runs all conversations, so many requests at once; the next turn of one comes behind the turns of all others."""
    waiting = deque((number, 0, [{"role": "system", "content": system}]) for number, (system, _) in enumerate(conversations))
    firsts, began = [], time.monotonic()
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120.0) as client:

        async def user():
            while waiting:
                number, turn, messages = waiting.popleft()
                messages = [*messages, {"role": "user", "content": conversations[number][1][turn]}]
                text, first = await ask(client, messages, output, number % 2 == 0)
                firsts.append(first)
                if turn + 1 < len(conversations[number][1]):
                    waiting.append((number, turn + 1, [*messages, {"role": "assistant", "content": text}]))

        await asyncio.gather(*(user() for _ in range(concurrency)))
    firsts.sort()
    return {
        "requests": len(firsts),
        "seconds": round(time.monotonic() - began, 1),
        "ttft_ms_p50": round(firsts[len(firsts) // 2] * 1e3, 1),
        "ttft_ms_p90": round(firsts[len(firsts) * 9 // 10] * 1e3, 1),
    }
