"""Which profile explains what was measured?

A step's time is taken to be

    fixed + per token computed + per pair of a prompt's token and one before it + per sequence + per token of context read

which are the parts of a profile file (docs/engine-model.md), each a straight line, but that steps of a few tokens, which are most
of those that only generate, have a time of their own: small matrices are multiplied by other code, and on a CPU three rows take less
time than two. The coefficients, none of the straight lines below zero, and the
time that a request spends outside of steps (HTTP, the way to the engine's process and back) are fitted together by least squares to

- the time between two steps of loaded runs, where some sequence was in both, so that the engine did not idle between them;
  what was in a step is known from the tokens that came at its end;
- the time to the first token of requests that were alone.

Needs nothing beyond Python.
"""

import statistics

BLOCK = 32
# Tokens of one step come one after the other; a second token of one request is the next step, and so is a gap of this share of
# the time between two tokens of a request that is alone.
GAP = 0.4
LINES = ("fixed", "per_token", "per_pair", "per_sequence", "per_context_token", "outside_of_steps")
# What steps of exactly so many tokens take beyond the lines, or less; from the last to twice as many tokens it fades.
FEW = (1, 2, 3, 4, 5, 6, 7, 8)
TERMS = (*LINES, *(f"with_{tokens}_tokens" for tokens in FEW))
# What the replay adds to each step of a profile, and to a first token for the way to a worker and back.
REPLAY_OVERHEAD_MS, REPLAY_WAY_MS = 1.0, 1.0
LENGTHS = (*FEW, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)


def between_tokens(alone):
    """The median time between two tokens of requests that were alone, in seconds."""
    gaps = [after - before for one in alone for before, after in zip(one["came"], one["came"][1:])]
    return statistics.median(gaps)


def steps(run, gap):
    """The steps of a loaded run: `(ends, {request: number of its token})`."""
    tokens = sorted((moment, request, place) for request, one in enumerate(run) for place, moment in enumerate(one["came"]))
    found, last = [], None
    for moment, request, place in tokens:
        if last is None or moment - last > gap or request in found[-1][1]:
            found.append((moment, {}))
        found[-1][1][request] = place
        last = moment
    return found


def few(tokens):
    """How much each number of `FEW` counts for a step of so many tokens."""
    fading = max(0.0, 2 - tokens / FEW[-1]) if tokens > FEW[-1] else 0.0
    return [1.0 if tokens == one else fading * (one == FEW[-1]) for one in FEW]


def terms(prefills, contexts, outside=0.0):
    """The parts of a step that computes `prefills` of (new, cached) tokens and generates behind `contexts`, and of what is outside."""
    new = sum(one for one, _ in prefills)
    pairs = sum(one * (cached + one / 2) for one, cached in prefills)
    tokens = new + len(contexts)
    return [1.0, tokens, pairs, len(prefills) + len(contexts), sum(contexts), outside, *few(tokens)]


def steps_of(run, gap):
    """Parts and milliseconds of those steps of a loaded run before which the engine did not idle."""
    seen, found = [], steps(run, gap)
    for (before, earlier), (ended, members) in zip(found, found[1:]):
        if not any(request in earlier for request in members):
            continue
        prefills = [(run[one]["new"], run[one]["cached"]) for one, place in members.items() if place == 0]
        contexts = [run[one]["prompt"] + place for one, place in members.items() if place > 0]
        seen.append((terms(prefills, contexts), (ended - before) * 1e3))
    return seen


def rows(loaded, alone):
    """What was seen: parts and milliseconds, first of steps, then of first tokens."""
    gap = GAP * between_tokens(alone)
    seen = [row for run in loaded for row in steps_of(run, gap)]
    for one in alone:
        seen.append((terms([(one["new"], one["cached"])], [], 1.0), (one["came"][0] - one["sent"]) * 1e3))
        for place, (before, ended) in enumerate(zip(one["came"], one["came"][1:]), 1):
            seen.append((terms([], [one["prompt"] + place]), (ended - before) * 1e3))
    return seen


def fit(loaded, alone):
    """Coefficients by name, and by how much steps are off."""
    seen = rows(loaded, alone)
    used = list(range(len(TERMS)))
    while True:
        solved = least_squares([([parts[place] for place in used], time) for parts, time in seen])
        lines = [place for place, term in enumerate(used) if term < len(LINES)]
        worst = min(lines, key=solved.__getitem__)
        if solved[worst] >= 0:
            break
        del used[worst]
    coefficients = dict.fromkeys(TERMS, 0.0)
    coefficients.update({TERMS[place]: value for place, value in zip(used, solved)})
    of_steps = [(parts, time) for parts, time in seen if parts[LINES.index("outside_of_steps")] == 0]
    relative = [time / _predicted(parts, coefficients) - 1 for parts, time in of_steps]
    return coefficients, {
        "steps": len(of_steps),
        "mean_step_ms": statistics.fmean(time for _, time in of_steps),
        "median_error": statistics.median(map(abs, relative)),
        "spread": statistics.pstdev(relative),
    }


def pace(run, coefficients):
    """The time that the steps of a loaded run took, over what the coefficients say."""
    seen = steps_of(run, GAP * coefficients["fixed"] / 1e3)
    return sum(time for _, time in seen) / sum(_predicted(parts, coefficients) for parts, _ in seen)


def _predicted(parts, coefficients):
    return sum(part * coefficients[name] for name, part in zip(TERMS, parts))


def least_squares(seen):
    """The nearest coefficients; what nothing was seen of is 0."""
    count = len(seen[0][0])
    scale = [max(abs(parts[place]) for parts, _ in seen) or 1.0 for place in range(count)]
    table = [[0.0] * (count + 1) for _ in range(count)]
    for parts, time in seen:
        scaled = [part / size for part, size in zip(parts, scale)]
        for row, value in zip(table, scaled):
            for place, other in enumerate((*scaled, time)):
                row[place] += value * other
    for pivot in range(count):
        best = max(range(pivot, count), key=lambda row: abs(table[row][pivot]))
        table[pivot], table[best] = table[best], table[pivot]
        if abs(table[pivot][pivot]) < 1e-9:
            table[pivot] = [0.0] * (count + 1)
            table[pivot][pivot] = 1.0
        for row in range(count):
            if row != pivot:
                factor = table[row][pivot] / table[pivot][pivot]
                table[row] = [value - factor * taken for value, taken in zip(table[row], table[pivot])]
    return [table[place][count] / table[place][place] / scale[place] for place in range(count)]


def profile(coefficients):
    """The coefficients as a profile file: one layer, tables of straight lines."""
    nothing = 1e-6
    fixed = max(coefficients["fixed"] - REPLAY_OVERHEAD_MS, nothing)
    pair, context = coefficients["per_pair"], coefficients["per_context_token"]
    dense = lambda tokens: coefficients["per_token"] * tokens + coefficients.get(f"with_{tokens}_tokens", 0.0)
    decode = [
        {"sequences": sequences, "context": length, "ms": max(context * sequences * length, nothing)}
        for sequences in (1, 2, 4, 8, 16, 32, 64, 128, 256)
        for length in (32, 256, 1024, 8192)
    ]
    return {
        "model": "tiny",
        "shape": {"layers": 1, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 151_936},
        "dtype": "bf16",
        "gpu": "CPU",
        "dense": [{"tokens": length, "ms": max(fixed + dense(length), nothing)} for length in LENGTHS],
        "prefill_attention": [
            {"new_tokens": new, "cached_tokens": cached, "ms": max(pair * new * (cached + new / 2), nothing)}
            for new in LENGTHS
            for cached in (0, 64, 128, 256, 512, 1024, 8192)
        ],
        "decode_attention": decode,
        "lm_head": [
            {"sequences": sequences, "ms_total": max(coefficients["per_sequence"] * sequences, nothing)}
            for sequences in (1, 2, 4, 8, 16, 32, 64, 128, 256)
        ],
        "device_copy_tb_per_s": 0.01,
        "host_to_device_gb_per_s": 10.0,
        "device_to_host_gb_per_s": 10.0,
    }
