"""A model, its tokenizer, its chats and its requests of tokens."""
from __future__ import annotations

import asyncio
import base64
import ctypes
import json
import threading
from array import array
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Callable, Iterable, Iterator, List, Literal, Mapping, Optional, Sequence, Union, overload

from . import _library as c
from ._library import lib

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

Messages = Union[str, Sequence[Mapping[str, Any]]]
Mask = Callable[[List[int]], Optional[Iterable[int]]]


class EvenkeelError(Exception):
    """What the library refused: `status` in a word or two, and its sentence."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status: str = lib.ek_status_name(status).decode()


def _check(status: int) -> None:
    if status:
        raise EvenkeelError(status, lib.ek_last_error().decode(errors="replace"))


def _ints(values: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values))(*values)


@dataclass
class Call:
    """A tool that the model calls."""
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class Reply:
    """A whole reply of a chat. `raw` is what the server writes: choices, log-probabilities, usage."""
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    finish: str = ""  # stop, tool_calls or length
    digest: str = ""  # of all logits that the reply was drawn from: equal digests, equal bits
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    reasoning_tokens: int = 0
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> dict[str, Any]:
        """For the messages of the next turn."""
        return self.raw["choices"][0]["message"] if self.raw else {"role": "assistant", "content": self.text}


@dataclass
class Event:
    """A piece of a reply. kind: text, reasoning, call, or end, which has the whole reply."""
    kind: Literal["text", "reasoning", "call", "end"]
    text: str = ""
    call: Call | None = None
    reply: Reply | None = None
    choice: int = 0


@dataclass
class Generated:
    """A reply in tokens. logits: a row for each token that was asked for, numpy's float32 where numpy is there."""
    tokens: list[int]
    text: str
    finish: str
    digest: str
    digests: list[str]
    prompt_tokens: int
    cached_tokens: int
    logits: Any = None


class Tokenizer:
    def __init__(self, model: Model):
        self._model = model

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Tokens, without <bos>. special: texts of control tokens count as these tokens."""
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 1))()
        return room[:lib.evenkeel_tokenize(self._model._engine(), data, len(data), special, room, len(room))]

    def decode(self, tokens: Sequence[int], special: bool = False) -> str:
        """Text; special: with control tokens."""
        ids = _ints(tokens)
        n = lib.evenkeel_detokenize(self._model._engine(), ids, len(ids), special, None, 0)
        room = ctypes.create_string_buffer(n + 1)
        lib.evenkeel_detokenize(self._model._engine(), ids, len(ids), special, room, n)
        return room.raw[:n].decode(errors="replace")

    def token(self, token: int) -> bytes:
        """The bytes of one token, which may be a part of a character."""
        n = ctypes.c_size_t()
        at = lib.evenkeel_token(self._model._engine(), token, ctypes.byref(n))
        return ctypes.string_at(at, n.value)

    def __len__(self) -> int:
        return self._model.vocab


class _Queue:
    """Requests of one caller. Closing it cancels them."""

    def __init__(self, model: Model):
        self.model, self.handle = model, ctypes.c_void_p()
        _check(lib.evenkeel_queue_open(ctypes.byref(self.handle), model._engine()))
        with model._lock:
            model._queues.add(self)

    def close(self) -> None:
        with self.model._lock:
            if self not in self.model._queues:
                return
            self.model._queues.discard(self)
        lib.evenkeel_queue_close(self.handle)

    def pending(self) -> int:
        if self not in self.model._queues:
            raise ValueError("the model was closed")
        return lib.evenkeel_pending(self.handle)

    def there(self, seconds: float = 0) -> Iterator[c.Event]:
        """Events that wait. For the first one so many seconds are waited."""
        while self.pending():
            at = lib.evenkeel_next(self.handle, seconds)
            if not at:
                return
            try:
                yield at.contents
            finally:
                lib.evenkeel_event_free(at)

    def events(self) -> Iterator[c.Event]:
        """Until no request is left. Waits in slices, so that Ctrl-C is heard."""
        while self.pending():
            yield from self.there(0.2)

    def __enter__(self) -> _Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(e: c.Event) -> str:
    return ctypes.string_at(e.text, e.n).decode(errors="replace")


class _Collected:
    """A reply from its events."""

    def __init__(self) -> None:
        self.reply = Reply()

    def take(self, e: c.Event) -> Event:
        r, text = self.reply, _text(e)
        if e.kind == c.TEXT:
            if e.choice == 0:
                r.text += text
            return Event("text", text, choice=e.choice)
        if e.kind == c.REASONING:
            if e.choice == 0:
                r.reasoning += text
            return Event("reasoning", text, choice=e.choice)
        if e.kind == c.CALL:
            call = Call(e.call_id.decode(), e.name.decode(), json.loads(text))
            if e.choice == 0:
                r.calls.append(call)
            return Event("call", text, call, choice=e.choice)
        if e.status:
            raise EvenkeelError(e.status, text)
        r.finish, r.digest = c.FINISH[e.finish], f"{e.digest:016x}"
        r.prompt_tokens, r.cached_tokens, r.tokens, r.reasoning_tokens = e.prompt_tokens, e.cached_tokens, e.tokens, e.reasoning_tokens
        r.raw = json.loads(text) if text else {}
        return Event("end", reply=r)


def _body(messages: Messages, tools: Sequence[Mapping[str, Any]] | None, options: Mapping[str, Any]) -> bytes:
    body: dict[str, Any] = dict(options)
    body["messages"] = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if tools:
        body["tools"] = tools
    body["evenkeel"] = {"digest": True, **(body.get("evenkeel") or {})}
    return json.dumps(body).encode()


class _Rows:
    """Rows of logits as they come, on the engine's thread."""

    def __init__(self, vocab: int):
        self.vocab, self.rows = vocab, []
        self.function = c.LOGITS(self._take)

    def _take(self, _arg: int | None, _position: int, row: Any) -> None:
        data = ctypes.string_at(row, 4 * self.vocab)
        self.rows.append(numpy.frombuffer(data, numpy.float32) if numpy else array("f", data))

    def all(self) -> Any:
        if not numpy:
            return self.rows
        return numpy.stack(self.rows) if self.rows else numpy.zeros((0, self.vocab), numpy.float32)


class _Masked:
    """A mask in Python; its exception ends the request."""

    def __init__(self, mask: Mask, vocab: int):
        self.mask, self.vocab, self.wrong = mask, vocab, None
        self.function = c.MASK(self._allow)

    def _allow(self, _arg: int | None, tokens: Any, n: int, allowed: Any) -> int:
        try:
            ids = self.mask(tokens[:n])
            if ids is None:
                return 0
            for i in ids:
                if not 0 <= i < self.vocab:
                    raise ValueError(f"the mask allows token {i}, the model has {self.vocab}")
                allowed[i >> 6] |= 1 << (i & 63)
        except BaseException as wrong:  # it may not leave this function
            self.wrong = wrong
            ctypes.memset(allowed, 0, (self.vocab + 63) // 64 * 8)
        return 1


class Model:
    """An open model with its engine.

    model: a folder, a GGUF file, a short name ("e2b") or ORG/NAME of a repository that pull has fetched; None: the
    bundled model. The other options are those of `evenkeel serve`; sizes are bytes. log(level, line) is called from any
    thread with each line of the engine's log: 0 error, 1 warning, up to 3.
    """

    def __init__(self, model: str | None = None, *, device: str | None = None, threads: int = 0, context: int = 0,
                 kv: str | None = None, weights: str | None = None, max_requests: int = 0, max_waiting: int = 0,
                 kv_bytes: float = 0, cache_bytes: float = 0, cache_dir: str | None = None, cache_disk_bytes: float = 0,
                 gpu_bytes: float = 0, draft: str | None = None, drafter: str | None = None, mmproj: str | None = None,
                 media: bool = True, split: str | None = None, kv_start: int = 0,
                 activations: str | None = None, chunk: int = 0, max_gap: float = 0, cache_host_bytes: float = 0,
                 cache_shared: str | None = None, log: Callable[[int, str], None] | None = None):
        given = {k: v.encode() if isinstance(v, str) else v for k, v in locals().items() if k not in ("self", "media", "log")}
        self._log = c.LOG(lambda _arg, level, line: log(level, line.decode(errors="replace"))) if log else c.LOG()
        options = c.Options(size=ctypes.sizeof(c.Options), no_media=not media, log=self._log, **given)
        self._handle: ctypes.c_void_p | None = None
        self._queues: set[_Queue] = set()
        self._lock = threading.Lock()
        handle = ctypes.c_void_p()
        _check(lib.evenkeel_open(ctypes.byref(handle), ctypes.byref(options)))
        self._handle = handle
        self.tokenizer = Tokenizer(self)

    def _engine(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the model was closed")
        return self._handle

    @property
    def context(self) -> int:
        """Longest prompt and reply together, in tokens."""
        return lib.evenkeel_context(self._engine())

    @property
    def vocab(self) -> int:
        return lib.evenkeel_vocab(self._engine())

    @property
    def device(self) -> str:
        return lib.evenkeel_device(self._engine()).decode()

    @property
    def numerics(self) -> str:
        """The arithmetic: with the same digest, the same id gives the same bits."""
        return lib.evenkeel_numerics(self._engine()).decode()

    @property
    def digest(self) -> str:
        """SHA-256 of the model's files, which are read the first time."""
        out = ctypes.c_char_p()
        _check(lib.evenkeel_digest(self._engine(), ctypes.byref(out)))
        return (out.value or b"").decode()

    @overload
    def chat(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None = ..., *, stream: Literal[True],
             **options: Any) -> Iterator[Event]: ...
    @overload
    def chat(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None = ..., *, stream: Literal[False] = ...,
             **options: Any) -> Reply: ...

    def chat(self, messages, tools=None, *, stream=False, **options):
        """A reply to messages, or to one text. options: fields of the server's chat completions (docs/API.md), such as
        temperature, max_tokens, seed, tool_choice, response_format. stream: its events as they come; leaving the loop
        cancels the rest."""
        body = _body(messages, tools, options)
        if stream:
            return self._stream(body)
        for event in self._stream(body):
            if event.reply:
                return event.reply
        raise EvenkeelError(10, "the reply has no end")

    def _stream(self, body: bytes) -> Iterator[Event]:
        collected = _Collected()
        with _Queue(self) as q:
            _check(lib.evenkeel_chat(q.handle, body, len(body), None, None))
            for e in q.events():
                yield collected.take(e)

    async def chat_async(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None = None,
                         **options: Any) -> AsyncIterator[Event]:
        """chat(stream=True) for an event loop, which waits on the queue's descriptor: many of them run in one thread.
        Leaving the loop cancels the rest; that waits for the engine's step."""
        loop, ready, collected = asyncio.get_running_loop(), asyncio.Event(), _Collected()
        body = _body(messages, tools, options)
        with _Queue(self) as q:
            fd = lib.evenkeel_fd(q.handle)
            loop.add_reader(fd, ready.set)
            try:
                _check(lib.evenkeel_chat(q.handle, body, len(body), None, None))
                while q.pending():
                    await ready.wait()
                    ready.clear()
                    for e in q.there():
                        yield collected.take(e)
            finally:
                loop.remove_reader(fd)

    def chat_many(self, requests: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, Reply | EvenkeelError]]:
        """Replies to many requests at once, as each ends: (index, reply). A request has the arguments of chat."""
        with _Queue(self) as q:
            open_ones: dict[int, _Collected] = {}
            for i, r in enumerate(requests):
                options = {k: v for k, v in r.items() if k not in ("messages", "tools")}
                body = _body(r["messages"], r.get("tools"), options)
                _check(lib.evenkeel_chat(q.handle, body, len(body), i + 1, None))
                open_ones[i] = _Collected()
            for e in q.events():
                i = (e.user or 0) - 1
                try:
                    event = open_ones[i].take(e)
                except EvenkeelError as wrong:
                    yield i, wrong
                    continue
                if event.reply:
                    yield i, event.reply

    def prompt(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None = None, **options: Any) -> list[int]:
        """The tokens of a chat's prompt, for generate."""
        body, n = _body(messages, tools, options), ctypes.c_size_t()
        room = (ctypes.c_int32 * self.context)()
        _check(lib.evenkeel_chat_tokens(self._engine(), body, len(body), room, len(room), ctypes.byref(n)))
        return room[:n.value]

    def generate(self, prompt: str | Sequence[int], *, max_tokens: int = 0, temperature: float = 0, top_k: int = 0,
                 top_p: float = 1, min_p: float = 0, repetition_penalty: float = 1, presence_penalty: float = 0,
                 frequency_penalty: float = 0, seed: int = 0, bias: Mapping[int, float] | None = None,
                 stop: Sequence[int] = (), ignore_eos: bool = False, replied: Sequence[int] = (), mask: Mask | None = None,
                 logits: bool = False, prompt_logits_from: int = 0, client: int = 0, cache_salt: int = 0) -> Generated:
        """Continues tokens, or a text behind <bos>. max_tokens 0: as many as the context holds. replied: tokens of the
        reply so far, which goes on behind them. mask(tokens of the reply) returns the allowed ids, or None for all; it
        is a pure function. logits: with their rows; prompt_logits_from: also those behind the prompt's tokens from this
        index on, 0: none, below 0: from the first. client: whose it is; clients take turns. Only requests of one
        cache_salt share cached prefixes."""
        given = self.tokenizer.encode("<bos>", True) + self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        tokens, stops = _ints([*given, *replied]), _ints(stop)
        biases = (c.Bias * len(bias or {}))(*[c.Bias(k, v) for k, v in (bias or {}).items()])
        rows, masked = _Rows(self.vocab) if logits else None, _Masked(mask, self.vocab) if mask else None
        r = c.Request(size=ctypes.sizeof(c.Request), tokens=tokens, n_tokens=len(tokens), max_tokens=max_tokens,
                      n_replied=len(replied), temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                      repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
                      frequency_penalty=frequency_penalty, seed=seed, bias=biases, n_bias=len(biases), stop=stops,
                      n_stop=len(stops), client=client, cache_salt=cache_salt, ignore_eos=ignore_eos, digest=1, prompt_logits_from=prompt_logits_from)
        if rows:
            r.logits = rows.function
        if masked:
            r.mask = masked.function
        out, data, digests = list(replied), b"".join(map(self.tokenizer.token, replied)), []
        with _Queue(self) as q:
            _check(lib.evenkeel_generate(q.handle, ctypes.byref(r), None))
            for e in q.events():
                if e.kind == c.TOKEN:
                    out.append(e.token)
                    digests.append(f"{e.digest:016x}")
                    data += ctypes.string_at(e.text, e.n)
                    continue
                if masked and masked.wrong:
                    raise masked.wrong
                if e.status:
                    raise EvenkeelError(e.status, _text(e))
                return Generated(out, data.decode(errors="replace"), c.FINISH[e.finish], f"{e.digest:016x}", digests,
                                 e.prompt_tokens, e.cached_tokens, rows.all() if rows else None)
        raise EvenkeelError(10, "the reply has no end")

    def logits(self, tokens: str | Sequence[int]) -> Any:
        """A row for each token: the logits of the one that follows it. n x vocab float32 in memory."""
        return self.generate(tokens, max_tokens=1, ignore_eos=True, logits=True, prompt_logits_from=-1).logits

    def close(self) -> None:
        """Cancels what runs. No other thread may be in a call."""
        handle, self._handle = self._handle, None
        with self._lock:
            self._queues.clear()
        if handle:
            lib.evenkeel_close(handle)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


def pull(model: str, progress: Callable[[float, float], None] | None = None) -> None:
    """Fetches a model of the Hugging Face Hub ("e2b", "ORG/NAME") into the cache that its tools share. progress(bytes,
    all) is called often; its exception ends the pull, and what came stays for the next one."""
    wrong: list[BaseException] = []

    def step(_arg: int | None, done: float, total: float) -> int:
        try:
            if progress:
                progress(done, total)
            return 1
        except BaseException as raised:
            wrong.append(raised)
            return 0

    status = lib.evenkeel_pull(model.encode(), c.PROGRESS(step), None)
    if wrong:
        raise wrong[0]
    _check(status)


def _url(data: str | bytes, kind: str) -> str:
    if isinstance(data, str):
        with open(data, "rb") as f:
            data = f.read()
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def image(data: str | bytes) -> dict[str, Any]:
    """A part of a message: a picture, by its file's path or bytes."""
    return {"type": "image_url", "image_url": {"url": _url(data, "image/*")}}


def sound(data: str | bytes) -> dict[str, Any]:
    """A part of a message: a sound, by its file's path or bytes."""
    return {"type": "audio_url", "audio_url": {"url": _url(data, "audio/*")}}
