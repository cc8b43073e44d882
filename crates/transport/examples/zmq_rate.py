"""The other side of zmq_rate.rs: pyzmq's own subscriber. Says how many seconds COUNT messages of ENDPOINT took.

Says "here" once it hears the publisher, and does not begin before a line comes."""

import sys
import time

import zmq

endpoint, count = sys.argv[1], int(sys.argv[2])
socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"")
socket.connect(endpoint)
# The first message is sent again and again until it arrives: libzmq does not say when a subscription is in force.
socket.recv_multipart()
print("here", flush=True)
sys.stdin.readline()
while socket.recv_multipart()[0] == b"start":
    pass
begun = time.perf_counter()
for _ in range(count - 1):
    socket.recv_multipart()
print(time.perf_counter() - begun, flush=True)
