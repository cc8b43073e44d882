"""What does an engine tell of its cache after each request? Asks the requests of `content.py` and keeps what is told."""

import json

import content
import probes
import stream
from frames import sequence


class Watched:
    """An engine that is asked, and whose events are kept."""

    def __init__(self, ports):
        self.ports = ports
        self.names = content.Names()
        self._labels = {}
        self._read = 0
        self._heard = 0
        self._recorder = stream.Recorder(ports.events_endpoint)
        if not self._recorder.connected.wait(20):
            raise TimeoutError(f"no publisher at {ports.events_endpoint}")

    def close(self):
        self._recorder.close()

    def ask(self, prompts, spellings, output):
        """Sends prompts in one request. Returns texts with their spellings, and how many tokens were cached."""
        body = probes.completion(prompt=prompts, max_tokens=output, return_token_ids=True)
        status, _, text = probes.ask(self.ports.http, "POST", probes.COMPLETIONS, body, "")
        if status != 200:
            raise RuntimeError(f"{status}: {text[:300]}")
        answer = json.loads(text)
        texts = []
        for choice, prompt, spelled in zip(answer["choices"], prompts, spellings):
            whole = list(prompt) + choice["token_ids"]
            texts.append((whole, content.Names.answer(spelled, len(choice["token_ids"]))))
            self.names.learn(*texts[-1])
        return texts, (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0

    def told(self):
        """What was told since the last time, once all of it was heard."""
        newest = self._newest()
        if newest is None:
            return []
        self._recorder.wait_for(lambda messages: messages and sequence(messages[-1]) >= newest)
        messages = self._recorder.messages[self._read :]
        self._read += len(messages)
        return [change for frames in messages for event in stream.batch(frames)[1] for change in self._changes(event)]

    def _newest(self):
        before = stream.newest_sequence(self.ports.replay_endpoint, self._heard)
        while True:
            newest = stream.newest_sequence(self.ports.replay_endpoint, self._heard)
            if newest == before:
                self._heard = newest or 0
                return newest
            before = newest

    def _changes(self, event):
        kind = event["type"]
        if kind == "AllBlocksCleared":
            return ["clear"]
        if kind == "BlockRemoved":
            return ["-" + self._labels.get(label, "unknown") for label in event["block_hashes"]]
        parent = event["parent_block_hash"]
        parent = None if parent is None else self._labels.get(parent, "unknown")
        changes = []
        for place, label in enumerate(event["block_hashes"]):
            tokens = event["token_ids"][place * content.BLOCK : (place + 1) * content.BLOCK]
            self._labels[label] = parent = self.names.name(parent, tokens)
            changes.append("+" + parent)
        return changes


def record(ports):
    """What an engine did for each request of `asks` and each trial of `groups`, beginning with an empty cache."""
    watched = Watched(ports)
    try:
        return {"sequential": _sequential(watched), "together": _together(watched)}
    finally:
        watched.close()


def _sequential(watched):
    clear(watched.ports)
    kept, texts = [], []
    for ask in content.asks():
        before, spelled = [], []
        if ask.after is not None:
            whole, how, length = texts[ask.after]
            until = len(whole) if ask.share is None and ask.fresh else min(ask.share or length, length)
            before, spelled = whole[:until], how[:until]
        room = content.LONGEST - ask.output - len(ask.fresh)
        prompt, spelled = before[:room] + list(ask.fresh), spelled[:room] + list(ask.fresh)
        [(whole, how)], cached = watched.ask([prompt], [spelled], ask.output)
        texts.append((whole, how, len(prompt)))
        kept.append({"prompt": len(prompt), "output": ask.output, "cached": cached, "told": watched.told()})
    return kept


def _together(watched):
    kept = []
    for fill, together, output, evict in content.groups():
        clear(watched.ports)
        for prompt in fill:
            watched.ask([prompt], [prompt], 2)
        before = watched.told()
        watched.ask(together, together, output)
        during = watched.told()
        for prompt in evict:
            watched.ask([prompt], [prompt], 1)
        kept.append({"at once": len(together), "before": before, "during": during, "after": watched.told()})
    return kept


def clear(ports):
    status, _, text = probes.ask(ports.http, "POST", "/reset_prefix_cache", None, "")
    if status != 200:
        raise RuntimeError(f"the cache was not cleared: {status} {text[:200]}")
