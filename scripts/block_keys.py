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


def name_hash(text):
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
        high, low = seed >> 64, seed & MASK
        self.s = low ^ split_mix(high ^ 0x686F6D696E672F31)
        self.k = [self.next() for _ in range(8)]
        self.group_step = self.next() | 1
        self.step = self.next() | 1
        self.root = self.next()
        x, y = self.next(), self.next()
        self.seed_id = fold(x, y ^ self.step)

    def next(self):
        self.s = self.s + 0x9E3779B97F4A7C15 & MASK
        return split_mix(self.s)

    def absorb(self, context, field, name):
        return fold(context ^ self.k[6] ^ field, name_hash(name) ^ self.k[7]) if name else context

    def absorb_media(self, context, identifier, offset):
        named = fold(context ^ self.k[6] ^ 3, name_hash(identifier) ^ self.k[7])
        return fold(named ^ self.k[5], (offset & MASK) ^ self.k[6])

    def group(self, t):
        words = [t[i] | t[i + 1] << 32 for i in range(0, 16, 2)]
        white = [word ^ k for word, k in zip(words, self.k)]
        p = [fold(white[i], white[i + 1]) for i in range(0, 8, 2)]
        return (p[0] ^ p[1]) + (p[2] ^ p[3]) & MASK

    def content(self, context, tokens):
        state = context ^ (len(tokens) * self.group_step & MASK)
        for start in range(0, len(tokens), 16):
            group = tokens[start : start + 16]
            group = group + [0] * (16 - len(group))
            state = (state * self.group_step & MASK) ^ self.group(group)
        return state

    def child(self, parent, content):
        return rotl(parent * self.step & MASK, 32) ^ content

    def blocks(self, tokens, n, ahead, adapter, salt, media):
        """The content hashes and the keys of a prompt's full blocks. `media`: (identifier, start, length), by start."""
        contents, keys = [], []
        for first in range(0, len(tokens) - n - ahead + 1, n):
            context = self.absorb(0, 1, adapter)
            if first == 0:
                context = self.absorb(context, 2, salt)
            for identifier, start, length in media:
                if start < first + n and start + length > first:
                    context = self.absorb_media(context, identifier, start - first)
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
        fields["hash"] = hexadecimal([name_hash(name("text"))])
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
