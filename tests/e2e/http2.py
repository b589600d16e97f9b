"""A minimal HTTP/2 client that sends frames which grpcio refuses to send."""

import contextlib
import socket
import struct
import time

import hpack
from waiting import PATIENCE_S

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0,
    1,
    3,
    4,
    6,
    7,
    8,
    9,
)
ACK = END_STREAM = 1
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4
MAX_FRAME = 16384

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"


def message(body, length=None, compressed=0):
    """Returns a gRPC message whose prefix states `length` bytes (the true length by default)."""
    return struct.pack(">BI", compressed, len(body) if length is None else length) + body


def request_headers(path, *extra, te="trailers", content_type="application/grpc"):
    return [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test"),
            ("te", te), ("content-type", content_type), *extra]


class Connection:
    """A connection. While it waits, it answers SETTINGS and PING unless it is `mute`. `source` is
    the address that the daemon sees; every address of 127.0.0.0/8 works on Linux."""

    def __init__(self, address, settings=(), mute=False, source="127.0.0.1"):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S,
                                               source_address=(source, 0))
        self.mute = mute
        self.goaway = None  # The debug data of the GOAWAY frame.
        self.headers = {}  # All headers and trailers received, by stream.
        self.data = {}  # The bytes of all DATA frames, by stream.
        self.resets = {}  # The error code, by stream.
        self.room = 65535  # The bytes of DATA that flow control permits to send.
        self._settings = settings
        self._seen = set()  # The (kind, flags) of the frames on stream 0.
        self._received = b""
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()

    def __enter__(self):
        settings = b"".join(struct.pack(">HI", *each) for each in self._settings)
        with contextlib.suppress(ConnectionError):  # A later read reports the close.
            self.socket.sendall(PREFACE + frame(SETTINGS, payload=settings))
        return self

    def __exit__(self, *_):
        self.socket.close()

    def frame(self, kind, flags=0, stream=0, payload=b""):
        self.socket.sendall(frame(kind, flags, stream, payload))

    def settle(self):
        """Waits until the peer has processed our SETTINGS ACK; returns whether it hung up."""
        return self.wait(lambda: (SETTINGS, 0) in self._seen) or self.ping()

    def ping(self):
        """Sends a PING and waits for its answer; returns whether the peer hung up."""
        self._seen.discard((PING, ACK))
        with contextlib.suppress(ConnectionError):
            self.frame(PING, payload=b"settled?")
        return self.wait(lambda: (PING, ACK) in self._seen)

    def block(self, path, *extra, **headers):
        """Returns the next call's headers, encoded with this connection's HPACK state."""
        return self._encoder.encode(request_headers(path, *extra, **headers), huffman=False)

    def open(self, stream, path, *extra, flags=END_HEADERS, **headers):
        """Starts a call: sends its headers."""
        block = self.block(path, *extra, **headers)
        pieces = [block[at:at + MAX_FRAME] for at in range(0, len(block), MAX_FRAME)]
        for kind, piece in zip([HEADERS] + [CONTINUATION] * len(pieces), pieces):
            last = END_HEADERS if piece is pieces[-1] else 0
            self.frame(
                kind, flags & ~END_HEADERS | last if kind == HEADERS else last, stream, piece
            )

    def send(self, stream, data, flags=0):
        """Sends DATA frames and ignores flow control."""
        for at in range(0, max(len(data), 1), MAX_FRAME):
            last = at + MAX_FRAME >= len(data)
            self.room -= len(data[at:at + MAX_FRAME])
            self.frame(DATA, flags if last else 0, stream, data[at:at + MAX_FRAME])

    def await_room(self, size):
        """Waits until flow control permits `size` bytes. `send` does not wait."""
        assert not self.wait(lambda: self.room >= size), "the peer hung up"

    def call(self, stream, path, body, *extra, **headers):
        """Makes a complete unary call and returns its trailers."""
        self.open(stream, path, *extra, **headers)
        self.send(stream, message(body), END_STREAM)
        return self.end(stream)

    def end(self, stream, within_s=PATIENCE_S):
        """Waits for a stream's end; returns its trailers, {"reset": code} or {"closed": True}."""
        self.wait(
            lambda: stream in self.resets or "grpc-status" in self.headers.get(stream, {}), within_s
        )
        if "grpc-status" in self.headers.get(stream, {}):
            return self.headers[stream]
        return {"reset": self.resets[stream]} if stream in self.resets else {"closed": True}

    def wait(self, happened, within_s=PATIENCE_S):
        """Reads until `happened()` or the connection's end; returns whether the peer hung up."""
        give_up = time.monotonic() + within_s
        while not happened():
            self.socket.settimeout(max(give_up - time.monotonic(), 0.001))
            try:
                received = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return True
            if not received:
                return True
            self._received += received
            self._take_frames()
        return False

    def closed(self, within_s=PATIENCE_S):
        """Waits until the peer closes the connection; raises TimeoutError if it does not."""
        with contextlib.suppress(ConnectionError):
            assert self.wait(lambda: False, within_s)
        return True

    def _take_frames(self):
        while len(self._received) >= 9:
            length = int.from_bytes(self._received[:3], "big")
            if len(self._received) < 9 + length:
                return
            kind, flags = self._received[3:5]
            stream = int.from_bytes(self._received[5:9], "big")
            payload = self._received[9:9 + length]
            self._received = self._received[9 + length:]
            self._take(kind, flags, stream, payload)

    def _take(self, kind, flags, stream, payload):
        if stream == 0:
            self._seen.add((kind, flags))
        if kind in (SETTINGS, PING) and not flags & ACK and not self.mute:
            with contextlib.suppress(OSError):
                self.frame(kind, ACK, 0, payload if kind == PING else b"")
        elif kind == HEADERS:
            self.headers.setdefault(stream, {}).update(self._decoder.decode(payload))
        elif kind == DATA:
            self.data[stream] = self.data.get(stream, b"") + payload
        elif kind == RST_STREAM:
            self.resets[stream] = int.from_bytes(payload, "big")
        elif kind == WINDOW_UPDATE and stream == 0:
            self.room += int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = payload[8:]

    def abort(self):
        """Resets the connection without GOAWAY, as the kernel does for a killed process."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def frame(kind, flags=0, stream=0, payload=b""):
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )
