"""A subscriber of vLLM's events about cached blocks, for tests: written from the protocol, not from what publishes here. Strict where
consumers are: frames, numbers without a gap, hashes of 8 bytes on the wire, parents that are known, no removal of what is not there.
Needs python3-zmq; msgpack is read here, because how wide an integer is on the wire matters."""
import struct, threading, time
import zmq


class Wide(int):
    """An integer that had 8 bytes on the wire."""


def unpack(b, at=0):
    """(value, where it ends) of one msgpack value."""
    t = b[at]
    at += 1
    if t < 0x80:
        return t, at
    if t < 0x90:
        return _map(b, at, t & 15)
    if t < 0xa0:
        return _list(b, at, t & 15)
    if t < 0xc0:
        return b[at:at + (t & 31)].decode(), at + (t & 31)
    if t >= 0xe0:
        return t - 256, at
    if t in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[t], at
    numbers = {0xca: ">f", 0xcb: ">d", 0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i", 0xd3: ">q"}
    if t in numbers:
        v, = struct.unpack_from(numbers[t], b, at)
        return Wide(v) if t in (0xcf, 0xd3) else v, at + struct.calcsize(numbers[t])
    sizes = {0xc4: ">B", 0xc5: ">H", 0xc6: ">I", 0xd9: ">B", 0xda: ">H", 0xdb: ">I", 0xdc: ">H", 0xdd: ">I", 0xde: ">H", 0xdf: ">I"}
    n, = struct.unpack_from(sizes[t], b, at)
    at += struct.calcsize(sizes[t])
    if t in (0xdc, 0xdd):
        return _list(b, at, n)
    if t in (0xde, 0xdf):
        return _map(b, at, n)
    return (b[at:at + n].decode() if t >= 0xd9 else b[at:at + n]), at + n


def _list(b, at, n):
    out = []
    for _ in range(n):
        v, at = unpack(b, at)
        out.append(v)
    return out, at


def _map(b, at, n):
    out = {}
    for _ in range(n):
        k, at = unpack(b, at)
        out[k], at = unpack(b, at)
    return out, at


STORED = ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx"]
REMOVED = ["type", "block_hashes", "medium", "group_idx"]


class Pod:
    """What one server holds, by its events."""

    def __init__(self, maps=True):
        self.maps = maps
        self.blocks = {}  # hash: (parent or None, tokens, extra keys)
        self.children = {}
        self.stored = self.removed = self.cleared = 0

    def apply(self, payload):
        batch, end = unpack(payload)
        assert end == len(payload), "bytes behind the batch"
        assert isinstance(batch, list) and len(batch) in (2, 3) and isinstance(batch[0], float), batch
        assert abs(batch[0] - time.time()) < 3600, batch[0]
        assert len(batch) == 2 or batch[2] is None or type(batch[2]) is int, batch[2]
        for event in batch[1]:
            if self.maps:
                assert isinstance(event, dict), event
            else:
                assert isinstance(event, list), event
                event = dict(zip(STORED if event[0] == "BlockStored" else REMOVED, event))
            getattr(self, {"BlockStored": "store", "BlockRemoved": "remove", "AllBlocksCleared": "clear"}[event["type"]])(event)

    def store(self, e):
        hashes, parent, tokens, size = e["block_hashes"], e["parent_block_hash"], e["token_ids"], e["block_size"]
        assert size == 64 and hashes and len(tokens) == size * len(hashes), e
        assert all(type(h) is Wide for h in hashes) and (parent is None or type(parent) is Wide), "a hash with fewer than 8 bytes"
        assert all(type(t) in (int, Wide) and t >= 0 for t in tokens)
        assert e.get("medium") == "GPU" and e.get("lora_id") is None and e.get("lora_name") is None and e.get("group_idx") is None, e
        extra = e.get("extra_keys") or [None] * len(hashes)
        assert len(extra) == len(hashes) and all(k is None or (k and all(isinstance(s, str) for s in k)) for k in extra), extra
        for i, h in enumerate(hashes):
            assert h not in self.blocks, f"{h:x} is stored twice"
            assert parent is None or parent in self.blocks, f"{h:x} behind {parent:x}, which is not stored"
            self.blocks[h] = parent, tuple(tokens[i * size:(i + 1) * size]), extra[i]
            self.children[parent] = self.children.get(parent, 0) + 1
            self.stored += 1
            parent = h

    def remove(self, e):
        assert e.get("medium") == "GPU" and e["block_hashes"], e
        for h in e["block_hashes"]:
            assert type(h) is Wide and h in self.blocks, f"{h:x} is removed and was not stored"
            assert not self.children.get(h), f"{h:x} is removed before what stands behind it"
            self.children[self.blocks.pop(h)[0]] -= 1
            self.removed += 1

    def clear(self, _):
        self.blocks.clear()
        self.children.clear()
        self.cleared += 1

    def digest(self):
        out = 0
        for h in self.blocks:
            out ^= h & (1 << 64) - 1
        return f"{out:016x}"

    def leaves(self):
        return [h for h in self.blocks if not self.children.get(h)]

    def path(self, h):
        """(tokens from the beginning to this block's end, the extra keys of the first block)"""
        out = []
        while h is not None:
            parent, tokens, extra = self.blocks[h]
            out.append(tokens)
            h = parent
        return [t for tokens in reversed(out) for t in tokens], extra


class Subscriber(threading.Thread):
    """Follows one publisher. `endpoint` is connected to, or bound with bind=True; replay: where missed batches are asked for. Gaps are made
    by lose(n), which throws the next n messages away."""

    def __init__(self, endpoint, replay=None, bind=False, maps=True, topic="kv@"):
        super().__init__(daemon=True)
        self.context = zmq.Context.instance()
        self.sub = self.context.socket(zmq.SUB)
        self.sub.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self.sub.setsockopt(zmq.RCVHWM, 0)
        self.sub.setsockopt(zmq.LINGER, 0)
        (self.sub.bind if bind else self.sub.connect)(endpoint)
        self.endpoint, self.replay, self.pod = endpoint, replay, Pod(maps)
        self.last, self.topic, self.error = None, None, None
        self.synced = bool(replay)  # without replays: once a batch has cleared everything
        self.losing = self.gaps = self.replays = self.resets = self.replayed = 0
        self.stop, self.lock = False, threading.Lock()
        self.start()

    def lose(self, n):
        with self.lock:
            self.losing += n

    def run(self):
        try:
            if self.replay:
                self.ask(0)
            while not self.stop:
                if self.sub.poll(50):
                    self.take(self.sub.recv_multipart())
        except Exception as e:  # noqa: BLE001: the test reports it
            import traceback
            self.error = "".join(traceback.format_exception(e))
        self.sub.close()

    def take(self, frames):
        assert len(frames) == 3 and len(frames[1]) == 8, frames
        topic, number = frames[0].decode(), int.from_bytes(frames[1], "big")
        assert len(topic.split("@")) == 3 and topic.startswith("kv@"), topic
        self.topic = topic
        with self.lock:
            if self.losing:
                self.losing -= 1
                return
            if not self.replay:
                self.follow(number, frames[2])
                return
            if self.last is not None and number <= self.last:
                if number > 0 and self.replayed > 0:  # replayed already
                    return
                assert number == 0, (number, self.last)
                self.resets += 1
                self.last, self.pod = None, Pod(self.pod.maps)
            want = 0 if self.last is None else self.last + 1
            if number > want:
                self.gaps += want > 0
                self.ask(want)
                if number <= self.last:
                    return
            self.pod.apply(frames[2])
            self.last, self.replayed = number, 0

    def follow(self, number, payload):
        """Without replays: after a gap, or where it came late, it waits for a batch that clears everything."""
        self.resets += self.last is not None and number <= self.last
        if self.last is None or number != self.last + 1:
            self.synced = False
        first = (unpack(payload)[0][1] or [None])[0]
        self.synced = self.synced or first in ({"type": "AllBlocksCleared"}, ["AllBlocksCleared"])
        if self.synced:
            self.pod.apply(payload)
        self.last = number

    def ask(self, start):
        """All batches from one on, consecutively."""
        dealer = self.context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(self.replay)
        dealer.send_multipart([b"", start.to_bytes(8, "big")])
        want = start
        self.replays += 1
        while True:
            assert dealer.poll(10000), "the replay stopped"
            frames = dealer.recv_multipart()
            assert len(frames) == 4 and frames[0] == b"" and len(frames[2]) == 8, frames
            if frames[2] == b"\xff" * 8:
                assert frames[1] == b"" and frames[3] == b"", frames
                break
            assert int.from_bytes(frames[2], "big") == want and frames[1].startswith(b"kv@"), (frames[1:3], want)
            self.pod.apply(frames[3])
            self.last = want
            want += 1
        self.replayed = want - start
        dealer.close()

    def close(self):
        self.stop = True
        self.join(10)
        assert not self.error, self.error
