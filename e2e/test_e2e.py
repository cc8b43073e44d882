"""Tests of the parts that need neither engine nor Homing: `python3 -m unittest` in this folder."""

import json
import os
import struct
import tempfile
import unittest
from dataclasses import dataclass

import content
import fitting
import model
import traffic
from compare import Claim, compare, expected_cached
from frames import END, is_end, pack, read_capture, sequence
from prompts import Prompts
from reasons import reason
from shape import differences, structure

CAPTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "captures")
ENGINES = ("vllm-0.32.0", "sglang-0.5.23")


@dataclass
class Said:
    """Stands for the answer of an index and for the reply of an engine."""

    device_blocks: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Cap(unittest.TestCase):
    def test_the_last_token_is_always_computed(self):
        # Held blocks of 32, tokens of the prompt, cached tokens: all seen with vLLM.
        for held, tokens, cached in ((0, 31, 0), (3, 100, 96), (4, 128, 96), (4, 129, 128), (6, 129, 128), (1, 32, 0)):
            self.assertEqual(expected_cached(held, tokens, 32), cached, f"{held} blocks of {tokens} tokens")


class Agreement(unittest.TestCase):
    def agrees(self, claim, held, cached):
        return compare("p", claim, Said(device_blocks=held), Said(prompt_tokens=100, cached_tokens=cached), 16).agrees

    def test_an_exact_view_is_equal(self):
        self.assertTrue(self.agrees(Claim.EXACT, 2, 32))
        self.assertFalse(self.agrees(Claim.EXACT, 1, 32))
        self.assertFalse(self.agrees(Claim.EXACT, 3, 32))

    def test_a_lower_bound_is_never_above(self):
        self.assertTrue(self.agrees(Claim.LOWER_BOUND, 2, 32))
        self.assertTrue(self.agrees(Claim.LOWER_BOUND, 1, 32))
        self.assertFalse(self.agrees(Claim.LOWER_BOUND, 3, 32))


class Structure(unittest.TestCase):
    def test_texts_and_ids_do_not_count_and_words_of_the_protocol_do(self):
        one = structure({"id": "a", "choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}})
        other = structure({"id": "b", "choices": [{"text": "y", "finish_reason": "length"}], "usage": {"prompt_tokens": 4}})
        self.assertEqual(differences(one, one), [])
        self.assertEqual(differences(one, other), [("choices[].finish_reason", "string stop", "string length")])

    def test_counts_matter_where_they_are_asked_for(self):
        usage = lambda tokens: structure({"prompt_tokens": tokens}, counts=True)
        self.assertEqual(differences(usage(3), usage(4)), [("prompt_tokens", "number 3", "number 4")])

    def test_missing_fields_and_other_types_are_found(self):
        found = differences(structure({"a": None, "b": 1}), structure({"a": [], "c": 1}))
        self.assertEqual(found, [("a", "null", "list"), ("b", "number", "missing"), ("c", "missing", "number")])

    def test_where_statuses_differ_nothing_else_is_compared(self):
        real, mock = {"x": {"status": 400, "body": {"a": ["null"]}}}, {"x": {"status": 200, "body": {}}}
        self.assertEqual(differences(real, mock), [("x status", "400", "200")])

    def test_reasons_are_for_places(self):
        self.assertIsNotNone(reason("metrics families http_requests_total"))
        self.assertIsNone(reason("answers =completion body choices[].text"))


class Workload(unittest.TestCase):
    def prompts(self, seed):
        return Prompts(seed, block_size=16, max_tokens=400, adapter="toy").take(300)

    def test_a_seed_gives_the_same_prompts(self):
        self.assertEqual(self.prompts(1), self.prompts(1))
        self.assertNotEqual(self.prompts(1), self.prompts(2))

    def test_all_kinds_occur_and_none_is_too_long(self):
        prompts = self.prompts(1)
        by_tokens = [p for p in prompts if not p.messages]
        self.assertTrue(all(1 <= len(p.tokens) <= 400 for p in by_tokens))
        self.assertTrue(any(p.messages for p in prompts))
        self.assertEqual({p.salt for p in by_tokens}, {None, "tenant-a", "tenant-b"})
        self.assertEqual({p.adapter for p in by_tokens}, {None, "toy"})
        self.assertTrue(any(len(p.tokens) % 16 == 0 for p in by_tokens))

    def test_beginnings_are_shared(self):
        seen, shared = set(), 0
        for prompt in self.prompts(1):
            begin = (prompt.tokens[:16], prompt.salt, prompt.adapter)
            shared += bool(prompt.tokens) and begin in seen
            seen.add(begin)
        self.assertGreater(shared, 100)


class Framing(unittest.TestCase):
    def test_what_is_packed_is_read(self):
        messages = [[b"topic", struct.pack(">Q", 7), b"payload"], [b"", b"", END, b""], []]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "some.bin")
            with open(path, "wb") as out:
                out.write(b"".join(map(pack, messages)))
            self.assertEqual(read_capture(path), messages)


class Captures(unittest.TestCase):
    """What captures/README.md and docs/engines.md say of the recordings."""

    def messages(self, engine, what):
        return read_capture(os.path.join(CAPTURES, f"{engine}-{what}.bin"))

    def test_replay_begins_with_what_was_asked_for(self):
        for engine in ENGINES:
            answers, answer = [], []
            for frames in self.messages(engine, "replay"):
                self.assertEqual((len(frames), frames[0]), (4, b""))
                if is_end(frames):
                    answers, answer = answers + [answer], []
                else:
                    answer.append(sequence(frames))
            newest = answers[1][0]
            self.assertEqual(answers, [[newest - 2, newest - 1, newest], [newest], [], []], engine)

    def test_numbers_start_again_with_a_process(self):
        for engine in ENGINES:
            numbers = [sequence(frames) for frames in self.messages(engine, "restart")]
            new = numbers.index(0)
            self.assertEqual(numbers[new:], list(range(len(numbers) - new)))
            self.assertEqual(numbers[:new], list(range(numbers[0], numbers[0] + new)))
            self.assertGreater(numbers[0], 0)

    def test_removals_come_before_stores_in_a_batch(self):
        for engine in ENGINES:
            mixed = 0
            for message in self.decoded(engine, "evict"):
                kinds = [event["type"] for event in message["payload"][1]]
                self.assertEqual(kinds, sorted(kinds), f"{engine} {message['seq']}")
                mixed += len(set(kinds)) == 2
            self.assertGreater(mixed, 0)

    def decoded(self, engine, what):
        with open(os.path.join(CAPTURES, f"{engine}-{what}.json"), encoding="utf-8") as file:
            return json.load(file)


class Adapter(unittest.TestCase):
    def test_the_header_covers_the_data(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "zeros")
            model.write_zeros(path, {"a": (2, 3), "b": (4, 1)})
            with open(path, "rb") as file:
                data = file.read()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        self.assertEqual(header["a"]["data_offsets"], [0, 24])
        self.assertEqual(header["b"]["data_offsets"], [24, 40])
        self.assertEqual(len(data), 8 + length + 40)


class Blocks(unittest.TestCase):
    """Two engines that answer otherwise are compared by what their blocks stand for."""

    def test_blocks_of_one_text_have_one_name_whatever_was_answered(self):
        prompt, names = list(range(40)), []
        for answer in ([7] * 24, [9] * 24):
            known = content.Names()
            known.learn(prompt + answer, content.Names.answer(prompt, 24))
            first = known.name(None, prompt[:32])
            names.append((first, known.name(first, (prompt + answer)[32:64])))
            self.assertIn("unknown", known.name(None, (prompt + answer)[32:64]))
        self.assertEqual(names[0], names[1])
        self.assertNotEqual(names[0][0], names[0][1])

    def record(self, *told):
        return {"sequential": [{"prompt": 1, "output": 1, "cached": 0, "told": one} for one in told], "together": []}

    def differs(self, real, model):
        found = content.compare(self.record(*real), self.record(*model))["sequential"]
        return [one["differs"] for one in found["differences"]]

    def test_content_copies_and_order_are_told_apart(self):
        self.assertEqual(self.differs([["+a", "+a"], ["-a"]], [["+a", "+a"], ["-a"]]), [])
        self.assertEqual(self.differs([["+a", "+a"]], [["+a"]]), [["content", "order of all changes"]])
        both = ["order of removals", "order of all changes"]
        self.assertEqual(self.differs([["+a", "+b"], ["-a", "-b"]], [["+a", "+b"], ["-b", "-a"]]), [both])
        self.assertEqual(self.differs([["+unknown"]], [["+unknown"]]), [["blocks that nobody sent"]])

    def test_requests_go_back_to_earlier_ones_only(self):
        for number, ask in enumerate(content.asks()):
            self.assertTrue(ask.after is None or 0 <= ask.after < number, f"request {number}")
            self.assertTrue(ask.fresh or ask.after is not None, f"request {number}")


class Fitting(unittest.TestCase):
    """A profile is found again from what an engine of that profile would show."""

    def test_coefficients_are_found_again(self):
        wanted = dict(zip(fitting.LINES, (12.0, 0.05, 1e-5, 0.8, 2e-4, 9.0)))
        # No more than two generate where no prompt is computed, so that nothing is seen of steps of three tokens.
        wanted |= {"with_1_tokens": -0.7, "with_2_tokens": 1.5}
        step = lambda parts: sum(part * wanted.get(name, 0.0) for part, name in zip(parts, fitting.TERMS)) / 1e3
        run, now = [], 0.0
        for number in range(40):
            # The next request comes while the last one still generates.
            new, cached = 40 + 37 * (number * 7 % 11), 32 * (number % 3)
            run.append({"new": new, "cached": cached, "prompt": new + cached, "came": []})
            for place in range(6):
                members = [one for one in run[-2 - number % 2 :] if len(one["came"]) < 13]
                prefills = [(one["new"], one["cached"]) for one in members if not one["came"]]
                contexts = [one["prompt"] + len(one["came"]) for one in members if one["came"]]
                now += step(fitting.terms(prefills, contexts))
                for one in members:
                    one["came"].append(now)
        alone = []
        for new in (50, 200, 400):
            first = step(fitting.terms([(new, 0)], [])) + wanted["outside_of_steps"] / 1e3
            second = first + step(fitting.terms([], [new + 1]))
            alone.append({"new": new, "cached": 0, "prompt": new, "sent": 0.0, "came": [first, second]})
        found, quality = fitting.fit([run], alone)
        for name, value in wanted.items():
            self.assertAlmostEqual(found[name] / value, 1.0, places=5, msg=name)
        self.assertLess(quality["median_error"], 1e-6)
        dense = {row["tokens"]: row["ms"] for row in fitting.profile(found)["dense"]}
        self.assertAlmostEqual(dense[2] - dense[1], 0.05 + 1.5 + 0.7, places=5)
        self.assertAlmostEqual(dense[64] - dense[32], 0.05 * 32, places=5)

    def test_steps_of_more_tokens_come_back_to_the_line(self):
        self.assertEqual([fitting.few(tokens)[-1] for tokens in (7, 8, 12, 16, 400)], [0.0, 1.0, 0.5, 0.0, 0.0])

    def test_no_line_falls(self):
        came = [0.1 * place for place in range(1, 9)]
        faster = [{"new": 10 + 200 * one, "cached": 0, "prompt": 10, "sent": 0.0, "came": [0.5 - 0.01 * one]} for one in range(9)]
        found, _ = fitting.fit([], faster + [{"new": 5, "cached": 0, "prompt": 5, "sent": 0.0, "came": came}])
        self.assertTrue(all(found[name] >= 0 for name in fitting.LINES), found)


def leading(left, right, size):
    """How many pieces of this size are equal before the first that is not."""
    pieces = min(len(left), len(right)) // size
    return next((n for n in range(pieces) if left[n * size :][:size] != right[n * size :][:size]), pieces)


class Traffic(unittest.TestCase):
    def test_a_trace_shares_what_its_prompts_share(self):
        plan = traffic.arrivals(1, 60, 5.0)
        keys = [json.loads(line)["keys"] for line in traffic.trace_lines(plan)]
        prompts = [traffic.prompt_of(one) for one in plan]
        shared = 0
        for left in range(len(plan)):
            for right in range(left):
                blocks = leading(prompts[left], prompts[right], traffic.BLOCK)
                self.assertEqual(leading(keys[left], keys[right], 16), blocks)
                shared += blocks
        self.assertGreater(shared, 0)

    def test_a_quantile_is_one_of_the_values(self):
        self.assertEqual([traffic.quantile([5, 1, 4, 2, 3], share) for share in (0.0, 0.5, 0.9, 1.0)], [1, 3, 5, 5])


if __name__ == "__main__":
    unittest.main()
