"""A SUB and a DEALER on a real libzmq, steered by lines.

Each line on standard input is a command; each is answered by one line on standard output: "ok", then what was asked for.

    subscribe ENDPOINT [TOPIC]  a SUB that connects
    bind ENDPOINT [TOPIC]       a SUB that binds; says where. tcp://127.0.0.1:0 takes any port
    receive COUNT               waits for so many messages; says them as frames in hexadecimal, + between frames
    dealer ENDPOINT             a DEALER that connects
    ask HEX[+HEX]               sends a request of these frames; says the answers up to the one with an empty last frame
    quit                        ends
"""

import sys

import zmq

PATIENCE_MS = 30_000


def frames(message):
    return "+".join(frame.hex() for frame in message)


def main():
    context = zmq.Context()
    sub = dealer = None
    for line in sys.stdin:
        command, *words = line.split()
        answer = ""
        if command in ("subscribe", "bind"):
            sub = context.socket(zmq.SUB)
            sub.rcvtimeo = PATIENCE_MS
            if command == "bind":
                sub.bind(words[0])
                answer = sub.getsockopt_string(zmq.LAST_ENDPOINT)
            else:
                sub.connect(words[0])
            sub.subscribe(words[1] if len(words) > 1 else "")
        elif command == "receive":
            answer = " ".join(frames(sub.recv_multipart()) for _ in range(int(words[0])))
        elif command == "dealer":
            dealer = context.socket(zmq.DEALER)
            dealer.rcvtimeo = PATIENCE_MS
            dealer.rcvhwm = 0
            dealer.connect(words[0])
        elif command == "ask":
            dealer.send_multipart([bytes.fromhex(part) for part in words[0].split("+")])
            answers = [dealer.recv_multipart()]
            while answers[-1][-1]:
                answers.append(dealer.recv_multipart())
            answer = " ".join(frames(one) for one in answers)
        elif command == "quit":
            break
        print("ok", answer, flush=True)
    context.destroy(linger=0)


main()
