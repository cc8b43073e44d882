"""Does the model's cache hold what a real vLLM's holds, block by block, in the same order?

A fixed list of requests goes to an engine, one after the other, and after each the events are kept that it told. Two engines
generate different answers and name blocks differently, so blocks get *names* that do not depend on either: the name of a
block is made of its parent's name and of its tokens, where a generated token stands for "what comes after this".
Kept are, for each request, the names that were stored (+), removed (-) or cleared in the order in which they were told.

Here are the requests, the names and the comparison; `watch.py` asks engines. Needs nothing beyond Python.
"""

import hashlib
import random
from collections import Counter
from dataclasses import dataclass

BLOCK = 32
# The cache, the longest text, and what a step computes at most: prompts beyond that come in chunks.
BLOCKS, LONGEST, STEP = 64, 1024, 512
REQUESTS, GROUPS = 300, 24


@dataclass(frozen=True)
class Ask:
    """A request: `fresh` tokens after the whole text of request `after`, or after the first `share` tokens of its prompt."""

    after: int | None
    share: int | None
    fresh: tuple
    output: int


def asks(seed=1, count=REQUESTS):
    """Shared beginnings, whole and partial blocks, repeats, continued answers, prompts of several chunks."""
    chance = random.Random(seed)
    made = []

    def fresh(tokens):
        return tuple(chance.randrange(1_000, 90_000) for _ in range(tokens))

    for number in range(count):
        output = chance.choice((1, 1, 2, 4, 8, 33, 66)) if number % 4 == 0 else chance.randrange(1, 5)
        kind = chance.random() if number > 8 else 1.0
        # Near ones are mostly still there, far ones mostly not.
        near = number - 1 - min(int(chance.expovariate(0.2)), number - 1) if number else 0
        if kind < 0.2:
            made.append(Ask(near, None, (), output))
        elif kind < 0.4:
            made.append(Ask(near, chance.choice((32, 64, 96, 128, 70, 100, 200)), fresh(chance.randrange(1, 160)), output))
        elif kind < 0.55:
            made.append(Ask(near, chance.choice((32, 64, 96, 128)), (), output))
        elif kind < 0.65:
            made.append(Ask(near, None, fresh(chance.randrange(1, 60)), output))
        elif kind < 0.72:
            made.append(Ask(None, None, fresh(chance.randrange(600, 900)), output))
        elif kind < 0.8:
            made.append(Ask(None, None, fresh(chance.randrange(1, 32)), output))
        else:
            made.append(Ask(None, None, fresh(chance.choice((32, 64, 96, 128, 160, 256, 45, 90, 170))), output))
    return made


def groups(seed=2, count=GROUPS):
    """Trials: requests that fill an empty cache, then some at once, equal or of one beginning, then some that evict."""
    chance = random.Random(seed)
    for _ in range(count):
        fresh = lambda tokens: [chance.randrange(1_000, 90_000) for _ in range(tokens)]
        fill = [fresh(chance.randrange(200, 600)) for _ in range(4)]
        shared = fresh(chance.choice((64, 96, 128, 100, 250)))
        equal = chance.random() < 0.6
        together = [shared + ([] if equal else fresh(chance.randrange(1, 80))) for _ in range(chance.randrange(2, 5))]
        yield fill, together, chance.choice((1, 4, 40)), [fresh(chance.randrange(400, 900)) for _ in range(3)]


class Names:
    """What blocks are called, whoever's they are."""

    def __init__(self):
        self._known = {}

    @staticmethod
    def answer(spelled, count):
        """Stands for the tokens that come after a text."""
        spelled = list(spelled)
        for _ in range(count):
            spelled.append("after " + _digest(spelled))
        return spelled

    def learn(self, tokens, spelled):
        """These tokens of an engine are spelled so."""
        parent = None
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            name = _digest([parent, *spelled[end - BLOCK : end]])
            self._known[parent, tuple(tokens[end - BLOCK : end])] = name
            parent = name

    def name(self, parent, tokens):
        return self._known.get((parent, tuple(tokens)), "unknown " + _digest([parent, *tokens]))


def compare(real, model):
    """Differences of two records: after each request, contents with their copies, and the order of all changes."""
    wrong, held, copies, removals = [], {"real": Counter(), "model": Counter()}, 0, 0
    most, evicting = 0, 0
    for number, (theirs, ours) in enumerate(zip(real["sequential"], model["sequential"], strict=True)):
        for side, one in (("real", theirs), ("model", ours)):
            apply(held[side], one["told"])
        gone = [change for change in theirs["told"] if change[0] == "-"]
        removals += len(gone)
        evicting += bool(gone)
        copies += sum(count > 1 for count in held["real"].values())
        most = max([most, *held["real"].values()])
        found = [
            what
            for what, holds in (
                ("cached tokens", theirs["cached"] == ours["cached"]),
                ("content", held["real"] == held["model"]),
                ("order of removals", gone == [change for change in ours["told"] if change[0] == "-"]),
                ("order of all changes", theirs["told"] == ours["told"]),
                ("blocks that nobody sent", not any("unknown" in change for change in theirs["told"] + ours["told"])),
            )
            if not holds
        ]
        if found:
            wrong.append({"request": number, "differs": found, "prompt": theirs["prompt"], "output": theirs["output"]})
    trials = [_trial(theirs, ours) for theirs, ours in zip(real["together"], model["together"], strict=True)]
    return {
        "sequential": {
            "requests": len(real["sequential"]),
            "requests_that_evicted": evicting,
            "removals": removals,
            "changes": sum(len(one["told"]) for one in real["sequential"]),
            "blocks_with_copies_summed_over_requests": copies,
            "most_copies_of_one_block": most,
            "requests_that_differ": len(wrong),
            "differences": wrong[:20],
        },
        "together": {
            "trials": len(trials),
            "requests_at_once": sum(one["at once"] for one in real["together"]),
            "same_content": sum(one["content"] for one in trials),
            "same_order_of_removals": sum(one["removals"] for one in trials),
            "same_order_of_all_changes": sum(one["all"] for one in trials),
        },
    }


def _trial(theirs, ours):
    counters, gone, told = [], [], []
    for one in (theirs, ours):
        held = Counter()
        whole = one["before"] + one["during"] + one["after"]
        apply(held, whole)
        counters.append(held)
        gone.append([change for change in whole if change[0] == "-"])
        told.append(whole)
    return {"content": counters[0] == counters[1], "removals": gone[0] == gone[1], "all": told[0] == told[1]}


def apply(held, told):
    """Replays changes into a count of copies."""
    for change in told:
        if change == "clear":
            held.clear()
        elif change[0] == "+":
            held[change[1:]] += 1
        else:
            held[change[1:]] -= 1
            if held[change[1:]] == 0:
                del held[change[1:]]


def _digest(parts):
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
