"""An engine as an agent sees it, on a real libzmq: a PUB, a ROUTER that sends again, and an HTTP server with /metrics.

    engine.py EVENTS REPLAY HTTP_PORT START KEPT

EVENTS and REPLAY are endpoints to bind (tcp://127.0.0.1:0 takes any port; REPLAY may be "-"), START is what /metrics says
about the start of the process ("-" for a server that does not tell, "absent" for no server), KEPT is how many messages are
kept for the replay. It says "ok", the endpoints and the port; then each line on standard input is a command, with so many
bytes after it, and is answered by "ok" and the next sequence.

    publish LENGTH           publishes the bytes that follow as the payload of a message
    lose LENGTH              keeps them for the replay and does not publish them: what a full queue does

It ends when its standard input does, so that it does not outlive a test that failed.
"""

import http.server
import struct
import sys
import threading

import zmq

END = b"\xff" * 8


def serve(port, start):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            told = "" if start == "-" else f"process_start_time_seconds {start}\n"
            body = f"# HELP x y\n{told}other_series 1\n".encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def main(events, replay, port, start, kept):
    # First, so that whoever hears the engine can ask it, too.
    port = int(port) if start == "absent" else serve(int(port), start)
    context = zmq.Context()
    publisher = context.socket(zmq.PUB)
    publisher.sndhwm = 0
    publisher.linger = 0
    publisher.bind(events)
    router = None
    if replay != "-":
        router = context.socket(zmq.ROUTER)
        router.sndhwm = 0
        router.linger = 0
        router.bind(replay)
    where = router.last_endpoint.decode() if router else "-"
    print("ok", publisher.last_endpoint.decode(), where, port, flush=True)

    messages = []
    sequence = 0
    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    if router:
        poller.register(router, zmq.POLLIN)
    source = sys.stdin.buffer.raw
    while True:
        ready = dict(poller.poll())
        if router in ready:
            identity, _, first = router.recv_multipart()
            first = struct.unpack(">Q", first)[0]
            for number, payload in messages:
                if number >= first:
                    router.send_multipart([identity, b"", b"", struct.pack(">Q", number), payload])
            router.send_multipart([identity, b"", b"", END, b""])
        if sys.stdin.fileno() in ready:
            line = source.readline().split()
            if not line:
                break
            payload = b""
            while len(payload) < int(line[1]):
                payload += source.read(int(line[1]) - len(payload))
            messages.append((sequence, payload))
            del messages[: -int(kept)]
            if line[0] == b"publish":
                publisher.send_multipart([b"", struct.pack(">Q", sequence), payload])
            sequence += 1
            print("ok", sequence, flush=True)
    context.destroy(linger=0)


main(*sys.argv[1:])
