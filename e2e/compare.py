"""Does what the index said agree with what the engine did?

An engine never takes the whole prompt from its cache, because it needs at least the last token to compute anything: of a
prompt of n tokens at most the blocks that lie within the first n - 1 tokens are used. vLLM and SGLang both do so. The index
knows nothing of that and answers with what is held; `expected_cached` is the step between the two, and nothing else is
allowed for.
"""

from dataclasses import asdict, dataclass
from enum import Enum


class Claim(Enum):
    """What the index says of its own answer."""

    EXACT = "exact"
    LOWER_BOUND = "lower bound"


@dataclass(frozen=True)
class Comparison:
    """One prompt: asked of the index first, then sent to the engine."""

    prompt: str
    claim: str
    prompt_tokens: int
    blocks_held: int
    expected_cached: int
    cached: int

    @property
    def agrees(self):
        if self.claim == Claim.EXACT.value:
            return self.expected_cached == self.cached
        return self.expected_cached <= self.cached

    def row(self):
        return asdict(self)


def expected_cached(blocks_held, prompt_tokens, block_size):
    """The cached tokens that an engine reports for a prompt of which it holds so many leading blocks."""
    return min(blocks_held, (prompt_tokens - 1) // block_size) * block_size


def compare(prompt, claim, answer, reply, block_size):
    """`answer` is of the index, `reply` of the engine."""
    return Comparison(
        prompt=prompt,
        claim=claim.value,
        prompt_tokens=reply.prompt_tokens,
        blocks_held=answer.device_blocks,
        expected_cached=expected_cached(answer.device_blocks, reply.prompt_tokens, block_size),
        cached=reply.cached_tokens,
    )
