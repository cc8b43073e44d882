"""Why is a difference between the mock and a real vLLM left as it is?"""

import re

# A pattern of places, and the reason. The first that matches counts.
REASONS = [
    (
        r"^answers chat with a picture status$",
        "Pictures are taken by the mock whatever its model, so that routers can be tested with them; the model of this "
        "comparison is one of text only",
    ),
    (
        r"^answers chat with a (named|required) tool.*\.(stop_reason|finish_reason)$",
        "How an answer ends is content: random weights ran into the length, or said an end that is not the tokenizer's",
    ),
    (r"^errors adapter that is not there status$", "The mock reads no adapter; `reject_adapters` makes loading fail"),
    (
        r"^errors (message |negative token).* error\.param$",
        "Where a value is wrong within a list, vLLM names the types of its own code; the mock names the field, and the "
        "place within messages",
    ),
    (r"^metrics (families|labels) (http_|python_|process_)", "Metrics of Python and of the web framework that vLLM uses"),
    (r"^metrics (families|labels) vllm:tool_call_parser_", "Counters of a parser that the mock has not"),
    (r"^metrics labels vllm:cache_config_info$", "Labels that tell of settings which the mock has not"),
]


def reason(where):
    """The reason for a difference at this place, or None where there is none."""
    return next((why for pattern, why in REASONS if re.search(pattern, where)), None)
