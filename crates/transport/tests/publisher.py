"""An engine's event sockets on a real libzmq, steered by lines.

Each line on standard input is a command; each is answered by one line on standard output: "ok", then what was asked for.

    bind ENDPOINT            a PUB that binds; says where. tcp://127.0.0.1:0 takes any port
    connect ENDPOINT         a PUB that connects
    replay ENDPOINT FORM     a ROUTER that sends kept messages again; FORM is "topic" (vLLM from 0.26) or "plain" (before)
    mark MESSAGES            the PUB's high-water mark, for sockets made later; 0 for none
    topic TEXT               the first frame of what is published; none for an empty one
    publish COUNT [SIZE]     publishes so many messages [topic, sequence, payload], payloads of SIZE bytes; says the next sequence
    send HEX                 publishes one message with this payload; says the next sequence
    lose HEX                 keeps such a message for the replay and does not publish it
    drop COUNT               keeps so many messages for the replay and does not publish them: what a full queue does
    renumber SEQUENCE        the next message has this sequence, and nothing is kept: what a restart does
    stream COUNT             publishes while no line comes, COUNT messages at a time; 0 to stop
    position                 says the next sequence
    close                    closes the PUB
    quit                     ends

It ends when its standard input does, so that it does not outlive a test that failed.
"""

import struct
import sys

import zmq

END = b"\xff" * 8


class Engine:
    def __init__(self):
        self.context = zmq.Context()
        self.events = None
        self.router = None
        self.form = "topic"
        self.mark = 0
        self.topic = b""
        self.next = 0
        self.kept = []
        self.batch = 0

    def open(self, endpoint, attach):
        self.events = self.context.socket(zmq.PUB)
        self.events.sndhwm = self.mark
        self.events.linger = 0
        getattr(self.events, attach)(endpoint)
        return self.events.last_endpoint.decode()

    def publish(self, count, size=0):
        for _ in range(count):
            self.events.send_multipart(self.keep(size))

    def keep(self, size=0):
        payload = b"%d" % self.next
        return self.keep_payload(payload + b"x" * (size - len(payload)))

    def keep_payload(self, payload):
        message = [self.topic, struct.pack(">Q", self.next), payload]
        self.kept.append(message)
        del self.kept[:-10_000]
        self.next += 1
        return message

    def answer_replay(self):
        identity, empty, start = self.router.recv_multipart()
        start = struct.unpack(">Q", start)[0]
        for topic, sequence, payload in self.kept:
            if struct.unpack(">Q", sequence)[0] >= start:
                self.reply(identity, topic, sequence, payload)
        self.reply(identity, b"", END, b"")

    def reply(self, identity, topic, sequence, payload):
        frames = [topic, sequence, payload] if self.form == "topic" else [sequence, payload]
        self.router.send_multipart([identity, b"", *frames])

    def obey(self, command, *words):
        if command in ("bind", "connect"):
            return self.open(words[0], command)
        if command == "replay":
            self.router = self.context.socket(zmq.ROUTER)
            self.router.linger = 0
            self.router.bind(words[0])
            self.form = words[1]
            return self.router.last_endpoint.decode()
        if command == "mark":
            self.mark = int(words[0])
        elif command == "topic":
            self.topic = words[0].encode() if words else b""
        elif command == "publish":
            self.publish(*map(int, words))
        elif command == "send":
            self.events.send_multipart(self.keep_payload(bytes.fromhex(words[0])))
        elif command == "lose":
            self.keep_payload(bytes.fromhex(words[0]))
        elif command == "drop":
            for _ in range(int(words[0])):
                self.keep()
        elif command == "renumber":
            self.next = int(words[0])
            self.kept.clear()
        elif command == "stream":
            self.batch = int(words[0])
        elif command == "close":
            self.events.close()
        elif command != "position":
            raise ValueError(command)
        return str(self.next)

    def run(self):
        poller = zmq.Poller()
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        while True:
            if self.router is not None:
                poller.register(self.router, zmq.POLLIN)
            ready = dict(poller.poll(0 if self.batch else None))
            if self.router in ready:
                self.answer_replay()
            if sys.stdin.fileno() in ready:
                line = sys.stdin.buffer.raw.readline().decode().split()
                if not line or line == ["quit"]:
                    break
                print("ok", self.obey(*line), flush=True)
            elif self.batch:
                self.publish(self.batch)
        self.context.destroy(linger=0)


Engine().run()
