#!/usr/bin/env python3
"""How is a block named? A second implementation of docs/block-keys.md, written to be read, and the source of its vectors.

    python3 scripts/block_keys.py crates/domain/tests/vectors.txt --check    fails if a value differs, and says which
    python3 scripts/block_keys.py crates/domain/tests/vectors.txt --write    computes every value in the file anew

It follows the page section by section and takes no shortcut for speed. Python 3.8 or later, nothing else.
"""

import argparse
import sys

MASK = (1 << 64) - 1


def fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def rotl(v, bits):
    return v << bits & MASK | v >> (64 - bits)


def split_mix(v):
    v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    v = (v ^ (v >> 27)) * 0x94D049BB133111EB & MASK
    return v ^ (v >> 31)


def label_hash(text):
    a, b = 0x2D358DCCAA6C78A5, 0x8BB84B93962EACC9
    data = text.encode("utf-8")
    state = fold(len(data) ^ a, b)
    for start in range(0, len(data), 8):
        w = int.from_bytes(data[start : start + 8], "little")
        state = fold(state ^ w ^ a, b) ^ rotl(state, 29)
    return split_mix(state)


class Keys:
    """The constants of a seed, and what is computed with them."""

    def __init__(self, seed):
        self.low, self.high = seed & MASK, seed >> 64 ^ 0x686F6D696E672F32
        self.a = [half for _ in range(8) for half in self.halves()]
        self.b = [half for _ in range(8) for half in self.halves()]
        self.white = [self.next(), self.next()]
        self.names = [self.next() for _ in range(4)]
        self.group_step = self.next() | 1
        self.step = self.next() | 1
        self.root = self.next()
        x, y = self.next(), self.next()
        self.seed_id = fold(x, y ^ self.step)

    def next(self):
        self.low = self.low + 0x9E3779B97F4A7C15 & MASK
        self.high = self.high + 0x9E3779B97F4A7C15 & MASK
        return split_mix(self.low ^ split_mix(self.high))

    def halves(self):
        both = self.next()
        return both & 0xFFFFFFFF, both >> 32

    def absorb(self, context, value):
        return fold(context ^ self.names[0], value ^ self.names[1])

    def absorb_offset(self, context, offset):
        return fold(context ^ self.names[2], (offset & MASK) ^ self.names[3])

    def name(self, field, text):
        data = text.encode("utf-8")
        words = [int.from_bytes(data[start : start + 4], "little") for start in range(0, len(data), 4)]
        return self.chain(field, len(data), words)

    def sum(self, white, added, t):
        x = [token + constant & 0xFFFFFFFF for token, constant in zip(t, added)]
        return white + sum(x[i] * x[i + 1] for i in range(0, 16, 2)) & MASK

    def group(self, t):
        return fold(self.sum(self.white[0], self.a, t), self.sum(self.white[1], self.b, t))

    def chain(self, context, count, numbers):
        state = context ^ (count * self.group_step & MASK)
        for start in range(0, len(numbers), 16):
            group = numbers[start : start + 16]
            group = group + [0] * (16 - len(group))
            state = rotl(state * self.group_step & MASK, 32) + self.group(group) & MASK
        return state

    def content(self, context, tokens):
        return self.chain(context, len(tokens), tokens)

    def child(self, parent, content):
        return rotl(parent * self.step & MASK, 32) ^ content

    def blocks(self, tokens, n, ahead, adapter, salt, media):
        """The content hashes and the keys of a prompt's full blocks. `media`: (identifier, start, length), by start."""
        contents, keys = [], []
        for first in range(0, len(tokens) - n - ahead + 1, n):
            context = 0
            if adapter:
                context = self.absorb(context, self.name(1, adapter))
            if salt and first == 0:
                context = self.absorb(context, self.name(2, salt))
            for identifier, start, length in media:
                if start < first + n and start + length > first:
                    context = self.absorb(context, self.name(3, identifier))
                    context = self.absorb_offset(context, start - first)
            contents.append(self.content(context, tokens[first : first + n + ahead]))
            keys.append(self.child(keys[-1] if keys else self.root, contents[-1]))
        return contents, keys


def split(text):
    return [] if text == "-" else text.split(",")


def parse_tokens(text):
    tokens = []
    for part in split(text):
        if ".." in part:
            tokens += range(*map(int, part.split("..")))
        elif "x" in part:
            token, times = map(int, part.split("x"))
            tokens += [token] * times
        else:
            tokens.append(int(part))
    return tokens


def parse_media(text):
    pairs = [part.split("@", 1) for part in split(text)]
    return [(identifier, *map(int, place.split("+"))) for identifier, place in pairs]


def computed(line):
    """The line of a vectors file with its values computed anew. Comments and empty lines stay as they are."""
    if not line or line.startswith("#"):
        return line
    kind, *fields = line.split(" ")
    fields = dict(field.split("=", 1) for field in fields)
    name = lambda field: "" if fields[field] == "-" else fields[field]
    hexadecimal = lambda numbers: ",".join(f"{number:016x}" for number in numbers) or "-"
    if kind == "bytes":
        fields["hash"] = hexadecimal([label_hash(name("text"))])
    elif kind == "seed":
        keys = Keys(int(fields["seed"], 16))
        fields["root"], fields["id"] = hexadecimal([keys.root]), hexadecimal([keys.seed_id])
    elif kind == "prompt":
        ahead = {"plain": 0, "ahead": 1}[fields["window"]]
        tokens, media = parse_tokens(fields["tokens"]), parse_media(fields["media"])
        keys = Keys(int(fields["seed"], 16))
        found = keys.blocks(tokens, int(fields["block"]), ahead, name("adapter"), name("salt"), media)
        fields["contents"], fields["keys"] = map(hexadecimal, found)
    else:
        raise ValueError(f"neither seed, bytes nor prompt: {line}")
    return " ".join([kind, *(f"{field}={value}" for field, value in fields.items())])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", help="the file of test vectors")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare; the exit status is 1 if something differs")
    what.add_argument("--write", action="store_true", help="rewrite the values in place")
    options = parser.parse_args()
    with open(options.vectors, encoding="utf-8", newline="") as file:
        old = file.read().split("\n")
    new = [computed(line) for line in old]
    differing = [number for number, pair in enumerate(zip(old, new)) if pair[0] != pair[1]]
    if options.write:
        with open(options.vectors, "w", encoding="utf-8", newline="") as file:
            file.write("\n".join(new))
        print(f"{len(differing)} lines changed")
        return 0
    for number in differing:
        print(f"line {number + 1}\n  is        {old[number]}\n  should be {new[number]}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
