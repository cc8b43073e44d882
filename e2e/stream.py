"""What does an engine say on its event sockets, byte for byte?

`Recorder` is a subscriber that keeps every message as it came. `replay` asks an engine's replay socket. `write_capture`
writes what was heard to a file.

Waits are for conditions and end with an error after a limit; nothing here sleeps for a fixed time.
"""

import json
import struct
import threading
import time

import msgspec
import zmq

from frames import END, is_end, pack, sequence

REPLAY_LIMIT_S = 30.0


class Recorder:
    """A subscription to one publisher that keeps all frames, in order of arrival."""

    def __init__(self, endpoint):
        self.messages = []
        self.connected = threading.Event()
        self._stop = threading.Event()
        self._grown = threading.Condition()
        context = zmq.Context.instance()
        self._socket = context.socket(zmq.SUB)
        self._socket.set_hwm(0)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._socket.connect(endpoint)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        while not self._stop.is_set():
            ready = dict(poller.poll(50))
            if self._monitor in ready:
                self._monitor.recv_multipart()
                self.connected.set()
            if self._socket in ready:
                frames = self._socket.recv_multipart()
                with self._grown:
                    self.messages.append(frames)
                    self._grown.notify_all()
        self._socket.disable_monitor()
        self._socket.close(linger=0)

    def wait_for(self, condition, limit_s=20.0):
        """Waits until `condition(messages)` is true."""
        with self._grown:
            if not self._grown.wait_for(lambda: condition(self.messages), limit_s):
                raise TimeoutError(f"not heard within {limit_s} s; {len(self.messages)} messages so far")

    def close(self):
        self._stop.set()
        self._thread.join()


def replay(endpoint, start, limit_s=REPLAY_LIMIT_S):
    """All messages with which the engine answers a replay from `start`, the end marker included, as a DEALER gets them."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.connect(endpoint)
    try:
        socket.send_multipart([b"", struct.pack(">Q", start)])
        answers = []
        deadline = time.monotonic() + limit_s
        while True:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0 or not socket.poll(left_ms):
                raise TimeoutError(f"the replay socket {endpoint} did not end its answer within {limit_s} s")
            frames = socket.recv_multipart()
            answers.append(frames)
            if is_end(frames):
                return answers
    finally:
        socket.close(linger=0)


def batch(frames):
    """The decoded payload `[ts, events, data_parallel_rank]` of a message."""
    return msgspec.msgpack.decode(frames[-1])


def newest_sequence(endpoint, start=0):
    """The number of the newest batch from `start` on in the engine's replay buffer, or None while there is none."""
    numbers = [sequence(frames) for frames in replay(endpoint, start)[:-1]]
    return max(numbers) if numbers else None


def write_capture(path, messages):
    """Writes `path`.bin and beside it `path`.json, the same decoded."""
    with open(f"{path}.bin", "wb") as out:
        for frames in messages:
            out.write(pack(frames))
    with open(f"{path}.json", "w", encoding="utf-8") as out:
        lines = [json.dumps(_readable(frames)) for frames in messages]
        out.write("[\n" + ",\n".join(lines) + "\n]\n")


def _readable(frames):
    head = [frame.hex() if frame == END or len(frame) == 8 else frame.decode("utf-8", "replace") for frame in frames[:-1]]
    if is_end(frames):
        return {"frames": len(frames), "head": head, "end": True}
    return {
        "frames": len(frames),
        "head": head,
        "seq": sequence(frames),
        "payload_len": len(frames[-1]),
        "payload": batch(frames),
    }
