"""Does `homing doctor` name what is wrong with real engines, and find nothing where nothing is?

    doctor.py --engines DIR --homing BINARY --result FILE [--logs DIR] [--homing-version TEXT] [ENGINE...]

Starts each engine without KV events and without usage details, looks at it, then as it should be started, and looks again: as it is, with a
block size that is not its own, with another tokenizer; and at a port where nobody is. Writes down what was said.
"""

import argparse
import json
import os
import subprocess
import sys

from engines import Ports, Setup, Sglang, Vllm

PORTS = Ports(http=8210, events=8211, replay=8212)
LOOK_LIMIT_S = 180


# Flags that somebody does not know who has not read anything, with how many words they are.
LEFT_OUT = {"--enable-prompt-tokens-details": 1, "--enable-cache-report": 1, "--kv-events-config": 2}


def without(command):
    flags, skip = [], 0
    for flag in command:
        skip = skip or LEFT_OUT.get(flag, 0)
        if skip:
            skip -= 1
        else:
            flags.append(flag)
    return flags


class BareVllm(Vllm):
    def command(self):
        return without(super().command())


class GoodVllm(Vllm):
    def environment(self):
        return {**super().environment(), "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}


class BareSglang(Sglang):
    def command(self):
        return without(super().command())


# Each engine as it is started without a thought, as it should be, and what is said of the latter. SGLang with LoRA needs a GPU.
ENGINES = {"vllm": (BareVllm, GoodVllm, []), "sglang": (BareSglang, Sglang, [("adapters", "note")])}


def look(options, worker, tokenizer, *more):
    command = [options.homing, "doctor", "--worker", worker, "--tokenizer", tokenizer, "--json", *more]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_LIMIT_S)
    said = json.loads(answer.stdout)["workers"][0] if answer.stdout.strip() else {}
    return {"exit": answer.returncode, "errors": answer.stderr, **said}


def named(looked):
    """The findings, as pairs of check and severity."""
    return sorted((finding["check"], finding["severity"]) for finding in looked.get("findings", []))


def other_tokenizer(folder, model_dir):
    """A folder with the model's template and a tokenizer that lacks one of its merges."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(model_dir):
        if name.endswith((".json", ".jinja")) and name != "tokenizer.json":
            with open(os.path.join(model_dir, name), encoding="utf-8") as file:
                text = file.read()
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
    with open(os.path.join(model_dir, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    # The first merges are those that every text uses.
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][50:]
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    return folder


def examine(options, name):
    """All looks at one engine, and those that did not see what they should."""
    setup = Setup.under(options.engines, name, options.logs, PORTS)
    bare_kind, good_kind, notes = ENGINES[name]
    tokenizer = setup.model_dir
    other = other_tokenizer(os.path.join(options.logs, "other-tokenizer"), tokenizer)
    looked, wrong = {}, {}

    def check(case, seen, status, expected):
        looked[case] = seen
        if seen["exit"] != status or named(seen) != sorted(expected):
            wrong[case] = {"wanted": [status, sorted(expected)], "found": [seen["exit"], named(seen)]}
        print(f"{name}, {case}: exit {seen['exit']}, {named(seen)}", flush=True)

    nobody = look(options, "http://127.0.0.1:9", tokenizer)
    check("nobody there", nobody, 2, [])
    bare = bare_kind(setup)
    try:
        bare.start()
        version = bare.version()
        findings = [("adapters", "note"), ("events", "fault"), ("usage", "warning")]
        check("events and usage details off", look(options, PORTS.url, tokenizer), 1, findings)
    finally:
        bare.kill()
    good = good_kind(setup)
    try:
        good.start()
        check("as it should be", look(options, PORTS.url, tokenizer), 0, notes)
        said = f"{PORTS.url},block-size=48"
        findings = [("block-size", "fault"), ("events", "fault"), ("overlap", "warning"), *notes]
        check("another block size is said", look(options, said, tokenizer), 1, findings)
        findings = [("tokenizer", "fault")] * 3 + notes
        check("another tokenizer", look(options, PORTS.url, other, "--no-prompts"), 1, findings)
    finally:
        good.kill()
    return {"version": version, "looked": looked}, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--engines", required=True)
    parser.add_argument("--homing", required=True)
    parser.add_argument("--homing-version", default="unknown")
    parser.add_argument("--result", required=True)
    parser.add_argument("--logs", default="/tmp")
    parser.add_argument("names", nargs="*", metavar="ENGINE", default=sorted(ENGINES))
    options = parser.parse_args()
    os.makedirs(options.logs, exist_ok=True)
    result = {"homing": options.homing_version, "wrong": {}, "engines": {}}
    for name in options.names:
        result["engines"][name], wrong = examine(options, name)
        result["wrong"].update({f"{name}: {case}": seen for case, seen in wrong.items()})
    with open(options.result, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2, ensure_ascii=False)
        file.write("\n")
    if result["wrong"]:
        print(json.dumps(result["wrong"], indent=2))
    sys.exit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
