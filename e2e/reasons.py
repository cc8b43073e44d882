"""Why is a difference between the mock and a real vLLM left as it is?"""

import re

# A pattern of places, and the reason. The first that matches counts.
REASONS = []


def reason(where, real, mock):
    """The reason for a difference, or None where there is none."""
    for pattern, why in REASONS:
        if re.search(pattern, where):
            return why
    return None
