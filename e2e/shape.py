"""What is the structure of an answer, and where do two structures differ? Needs nothing beyond Python.

A structure is a table from a path (`choices[].text`) to what is found there: types, and the values themselves where they are
words of the protocol and not content. So two answers with other texts, numbers and ids have one structure.
"""

# Fields whose values are words of the protocol.
WORDS = {
    "object", "type", "role", "finish_reason", "status", "code", "param", "owned_by", "stop_reason", "reason", "success",
    "parent", "enable_kv_cache_events", "publisher", "topic",
}
# Fields whose values are counts that must be equal where prompts are the same tokens.
COUNTS = {"prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "input_tokens", "output_tokens", "count"}
# Objects whose keys are content and not structure.
OPEN = {"top_logprobs", "arguments", "properties", "metadata", "parameters"}


def structure(value, counts=False):
    """The table of a decoded JSON value."""
    table = {}
    _visit(value, "", "", table, counts)
    return {path: sorted(found) for path, found in sorted(table.items())}


def _visit(value, path, key, table, counts):
    kind = _kind(value)
    word = key in WORDS and kind in ("string", "number", "bool") or counts and key in COUNTS and kind == "number"
    table.setdefault(path or "(all)", set()).add(f"{kind} {value}" if word else kind)
    if kind == "object":
        for name, inner in value.items():
            name = "*" if key in OPEN else name
            _visit(inner, f"{path}.{name}" if path else name, name, table, counts)
    elif kind == "list":
        for inner in value:
            _visit(inner, f"{path}[]", key, table, counts)


def _kind(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, (str, bytes)):
        return "string"
    return "list" if isinstance(value, (list, tuple)) else "object"


def differences(real, mock, where=""):
    """Where two recordings differ: triples of a place, what the real one has, what the mock has."""
    if isinstance(real, dict) and isinstance(mock, dict):
        if real.get("status") != mock.get("status"):
            # Where one has an answer and the other an error, nothing else can be compared.
            return [(f"{where} status", _short(real.get("status")), _short(mock.get("status")))]
        found = []
        for key in sorted({*real, *mock}):
            place = f"{where} {key}".strip()
            if key not in mock:
                found.append((place, _short(real[key]), "missing"))
            elif key not in real:
                found.append((place, "missing", _short(mock[key])))
            else:
                found += differences(real[key], mock[key], place)
        return found
    if real == mock:
        return []
    if isinstance(real, list) and isinstance(mock, list) and any(isinstance(one, (dict, list)) for one in real + mock):
        if len(real) != len(mock):
            return [(where, f"{len(real)}: {_short(real)}", f"{len(mock)}: {_short(mock)}")]
        pairs = enumerate(zip(real, mock))
        return [one for place, (left, right) in pairs for one in differences(left, right, f"{where} #{place}")]
    return [(where, _short(real), _short(mock))]


def _short(value):
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        text = " | ".join(value)
    else:
        text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
