"""Which prompts are sent? A seeded set in which beginnings are shared, lengths lie around block boundaries, and salts,
adapters and chats occur.

The same seed gives the same prompts. A prompt is an earlier one repeated, an earlier one cut off or continued, or one that
begins like a family of others.
"""

import random
from dataclasses import dataclass

FAMILIES = 5
SALTS = (None, None, None, "tenant-a", "tenant-b")
WORDS = ("map", "river", "stone", "cloud", "engine", "pigeon", "letter", "tower", "window", "garden", "north", "home")


@dataclass(frozen=True)
class Prompt:
    """A request: either token ids or chat messages. `salt` separates caches; `adapter` names a LoRA."""

    name: str
    tokens: tuple = ()
    messages: tuple = ()
    salt: str | None = None
    adapter: str | None = None
    output_tokens: int = 1


class Prompts:
    """An endless supply. `adapter` is the name of a LoRA that the engine has, or None."""

    def __init__(self, seed, block_size, max_tokens, adapter=None):
        self._rng = random.Random(seed)
        self._block = block_size
        self._max = max_tokens
        self._adapters = (None, None, None, adapter) if adapter else (None,)
        self._families = [self.fresh(self._rng.randrange(2, 9) * block_size) for _ in range(FAMILIES)]
        self._systems = [self._sentence(60 + 40 * i) for i in range(3)]
        self._sent = []
        self._number = 0

    def take(self, count):
        return [self.next() for _ in range(count)]

    def next(self):
        self._number += 1
        if self._rng.random() < 0.2:
            return self._chat()
        tokens = self._begin()
        self._sent = (self._sent + [tokens])[-40:]
        return Prompt(
            name=f"tokens {self._number}",
            tokens=tokens,
            salt=self._rng.choice(SALTS),
            adapter=self._rng.choice(self._adapters),
            output_tokens=self._rng.choice((1, 1, 1, 2, 5, 2 * self._block)),
        )

    def _begin(self):
        kind = self._rng.choice(("family", "family", "again", "cut", "continued")) if self._sent else "family"
        if kind == "family":
            tokens = self._rng.choice(self._families) + self.fresh(self._length(5 * self._block))
        elif kind == "again":
            tokens = self._rng.choice(self._sent)
        elif kind == "cut":
            tokens = self._rng.choice(self._sent)
            tokens = tokens[: self._length(len(tokens))]
        else:
            tokens = self._rng.choice(self._sent) + self.fresh(self._length(4 * self._block))
        return tokens[: self._max]

    def _length(self, limit):
        """A length up to about `limit`, by half at a block's end, just before or just after it."""
        if self._rng.random() < 0.5:
            return self._rng.randrange(1, max(2, limit + 1))
        blocks = self._rng.randrange(1, max(2, limit // self._block + 1))
        return blocks * self._block + self._rng.choice((-1, 0, 1))

    def _chat(self):
        messages = [{"role": "system", "content": self._rng.choice(self._systems)}]
        for turn in range(self._rng.choice((1, 1, 3))):
            role = "assistant" if turn % 2 else "user"
            messages.append({"role": role, "content": " ".join(WORDS[: self._rng.randrange(2, len(WORDS))])})
        return Prompt(name=f"chat {self._number}", messages=tuple(messages), salt=self._rng.choice(SALTS))

    def fresh(self, count):
        """Tokens that no other prompt begins with."""
        return tuple(self._rng.randrange(1000, 100_000) for _ in range(count))

    def _sentence(self, words):
        return " ".join(self._rng.choice(WORDS) for _ in range(words))
