"""BatchExistKey of one key in a loop that builds its frames once and counts bytes, with the standard library.

plain_loop.py HOST PORT CALLS IN_FLIGHT ROUNDS HASH TENANT prints calls per second in the best round.
"""
import hashlib
import socket
import struct
import sys
import time

host, port, calls, depth, rounds, type_hash, tenant = sys.argv[1:]
calls, depth, rounds = int(calls), int(depth), int(rounds)


def text(value):
    return bytes([len(value)]) + value.encode()


name = b"mooncake::WrappedMasterService::BatchExistKey"
function = int.from_bytes(hashlib.md5(name).digest()[:4], "big")
body = struct.pack("<IB", int(type_hash), 1) + text("bench-key-0")
body += text(tenant) if tenant else b""
frames = [struct.pack("<BBBBIIII", 21, 0, 0, 0, seq, function, len(body), 0) + body for seq in range(depth)]

with socket.create_connection((host, int(port)), timeout=30) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(frames[0])
    reply = len(connection.recv(1 << 18))
    best = 0
    for _ in range(rounds):
        began = time.perf_counter()
        sent = got = pending = 0
        while got < calls:
            free = min(depth - (sent - got), calls - sent)
            if free >= depth // 2 or (free and sent + free == calls):
                connection.sendall(b"".join(frames[(sent + at) % depth] for at in range(free)))
                sent += free
            data = connection.recv(1 << 18)
            if not data:
                sys.exit("closed")
            pending += len(data)
            got += pending // reply
            pending %= reply
        best = max(best, calls / (time.perf_counter() - began))
    print(best)
