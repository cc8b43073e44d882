"""Does `homing doctor` name what is wrong with a real vLLM, and find nothing where nothing is?

    doctor.py --engines DIR --homing BINARY --result FILE [--logs DIR] [--homing-version TEXT]

Starts vLLM without KV events and without usage details, looks at it, then as it should be started, and looks again: as it is, with a
block size that is not its own, with another tokenizer, and at a port where nobody is. Writes down what was said.
"""

import argparse
import json
import os
import subprocess
import sys

from engines import Ports, Setup, Vllm

PORTS = Ports(http=8210, events=8211, replay=8212)
LOOK_LIMIT_S = 180


class Bare(Vllm):
    """As somebody starts it who has not read anything."""

    LEFT_OUT = {"--enable-prompt-tokens-details": 1, "--kv-events-config": 2}

    def command(self):
        flags, skip = [], 0
        for flag in super().command():
            skip = skip or self.LEFT_OUT.get(flag, 0)
            if skip:
                skip -= 1
            else:
                flags.append(flag)
        return flags


class Good(Vllm):
    """As it should be started."""

    def environment(self):
        return {**super().environment(), "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--engines", required=True)
    parser.add_argument("--homing", required=True)
    parser.add_argument("--homing-version", default="unknown")
    parser.add_argument("--result", required=True)
    parser.add_argument("--logs", default="/tmp")
    options = parser.parse_args()
    os.makedirs(options.logs, exist_ok=True)
    setup = Setup.under(options.engines, "vllm", options.logs, PORTS)
    tokenizer = setup.model_dir
    other = other_tokenizer(os.path.join(options.logs, "other-tokenizer"), tokenizer)
    looked, wrong = {}, {}

    def check(name, seen, status, expected):
        looked[name] = seen
        if seen["exit"] != status or named(seen) != sorted(expected):
            wrong[name] = {"wanted": [status, sorted(expected)], "found": [seen["exit"], named(seen)]}

    nobody = look(options, "http://127.0.0.1:9", tokenizer)
    check("nobody there", nobody, 2, [])
    bare = Bare(setup)
    try:
        bare.start()
        version = bare.version()
        findings = [("adapters", "note"), ("events", "fault"), ("usage", "warning")]
        check("events and usage details off", look(options, PORTS.url, tokenizer), 1, findings)
    finally:
        bare.kill()
    good = Good(setup)
    try:
        good.start()
        check("as it should be", look(options, PORTS.url, tokenizer), 0, [])
        said = f"{PORTS.url},block-size=48"
        findings = [("block-size", "fault"), ("events", "fault"), ("overlap", "warning")]
        check("another block size is said", look(options, said, tokenizer), 1, findings)
        findings = [("tokenizer", "fault")] * 3
        check("another tokenizer", look(options, PORTS.url, other, "--no-prompts"), 1, findings)
    finally:
        good.kill()
    result = {"engine": "vllm", "version": version, "homing": options.homing_version, "wrong": wrong, "looked": looked}
    with open(options.result, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2, ensure_ascii=False)
        file.write("\n")
    for name, seen in looked.items():
        print(f"{name}: exit {seen['exit']}, {named(seen)}")
    if wrong:
        print(json.dumps(wrong, indent=2))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
