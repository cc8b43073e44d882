"""What are the frames of a message, and how are messages kept in a file? Needs nothing beyond Python.

The framing of `captures/`: per message a u32 LE number of frames, then per frame a u32 LE length and the bytes.
"""

import struct

END = b"\xff" * 8


def is_end(frames):
    return len(frames) >= 2 and frames[-1] == b"" and frames[-2] == END


def sequence(frames):
    """The sequence number of a message: the last but one frame, in a subscription and in a replay alike."""
    return struct.unpack(">Q", frames[-2])[0]


def pack(frames):
    """A message as it is kept in a file."""
    parts = [struct.pack("<I", len(frames))]
    for frame in frames:
        parts += [struct.pack("<I", len(frame)), frame]
    return b"".join(parts)


def read_capture(path):
    with open(path, "rb") as file:
        data = file.read()
    messages, at = [], 0

    def number():
        nonlocal at
        at += 4
        return struct.unpack_from("<I", data, at - 4)[0]

    while at < len(data):
        frames = []
        for _ in range(number()):
            length = number()
            frames.append(data[at : at + length])
            at += length
        messages.append(frames)
    return messages
