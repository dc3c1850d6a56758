"""libevenkeel by ctypes: include/evenkeel.h in Python's words. tests/python/package.py compares the structs with the compiler's."""
from __future__ import annotations

import ctypes
import os
import sys
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint64,
                    c_void_p)

TOKEN, TEXT, REASONING, CALL, END = 1, 2, 3, 4, 5
FINISH = {1: "stop", 2: "tool_calls", 3: "length", 4: "cancelled", 5: "error"}

MASK = CFUNCTYPE(c_int, c_void_p, POINTER(c_int32), c_int, POINTER(c_uint64))
LOGITS = CFUNCTYPE(None, c_void_p, c_int, POINTER(c_float))
PROGRESS = CFUNCTYPE(c_int, c_void_p, c_double, c_double)
LOG = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class Options(Structure):
    _fields_ = [("size", c_size_t), ("model", c_char_p), ("weights", c_char_p), ("kv", c_char_p), ("kv_start", c_int),
                ("activations", c_char_p), ("mmproj", c_char_p),
                ("no_media", c_int), ("device", c_char_p), ("split", c_char_p), ("gpu_bytes", c_double), ("threads", c_int),
                ("isa", c_char_p), ("chunk", c_int), ("max_gap", c_double), ("draft", c_char_p), ("drafter", c_char_p), ("context", c_int),
                ("max_requests", c_int), ("max_waiting", c_int), ("kv_bytes", c_double), ("cache_bytes", c_double),
                ("cache_host_bytes", c_double),
                ("cache_dir", c_char_p), ("cache_disk_bytes", c_double), ("cache_shared", c_char_p),
                ("cache_shared_ca", c_char_p), ("cache_shared_cert", c_char_p), ("log", LOG), ("log_arg", c_void_p)]


class Event(Structure):
    _fields_ = [("kind", c_int), ("request", c_uint64), ("user", c_void_p), ("choice", c_int), ("token", c_int32),
                ("text", c_void_p), ("n", c_size_t), ("name", c_char_p), ("call_id", c_char_p), ("digest", c_uint64),
                ("finish", c_int), ("status", c_int), ("state", c_char_p), ("prompt_tokens", c_int),
                ("cached_tokens", c_int), ("tokens", c_int), ("reasoning_tokens", c_int)]


class Bias(Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class Request(Structure):
    _fields_ = [("size", c_size_t), ("tokens", POINTER(c_int32)), ("n_tokens", c_size_t), ("max_tokens", c_int),
                ("n_replied", c_int), ("user", c_void_p), ("temperature", c_float), ("top_k", c_int),
                ("top_p", c_float), ("min_p", c_float), ("repetition_penalty", c_float), ("presence_penalty", c_float),
                ("frequency_penalty", c_float), ("seed", c_uint64), ("bias", POINTER(Bias)), ("n_bias", c_size_t),
                ("stop", POINTER(c_int32)), ("n_stop", c_size_t), ("client", c_uint64), ("cache_salt", c_uint64), ("ignore_eos", c_int), ("digest", c_int),
                ("mask", MASK), ("mask_arg", c_void_p), ("logits", LOGITS), ("logits_arg", c_void_p),
                ("prompt_logits_from", c_int)]


# Name: result, arguments.
_FUNCTIONS = {
    "ek_version": (c_char_p, []),
    "ek_last_error": (c_char_p, []),
    "ek_status_name": (c_char_p, [c_int]),
    "evenkeel_pull": (c_int, [c_char_p, PROGRESS, c_void_p]),
    "evenkeel_open": (c_int, [POINTER(c_void_p), POINTER(Options)]),
    "evenkeel_close": (None, [c_void_p]),
    "evenkeel_context": (c_int, [c_void_p]),
    "evenkeel_vocab": (c_int, [c_void_p]),
    "evenkeel_device": (c_char_p, [c_void_p]),
    "evenkeel_numerics": (c_char_p, [c_void_p]),
    "evenkeel_digest": (c_int, [c_void_p, POINTER(c_char_p)]),
    "evenkeel_tokenize": (c_size_t, [c_void_p, c_char_p, c_size_t, c_int, POINTER(c_int32), c_size_t]),
    "evenkeel_detokenize": (c_size_t, [c_void_p, POINTER(c_int32), c_size_t, c_int, c_void_p, c_size_t]),
    "evenkeel_token": (c_void_p, [c_void_p, c_int32, POINTER(c_size_t)]),
    "evenkeel_queue_open": (c_int, [POINTER(c_void_p), c_void_p]),
    "evenkeel_queue_close": (None, [c_void_p]),
    "evenkeel_next": (POINTER(Event), [c_void_p, c_double]),
    "evenkeel_event_free": (None, [POINTER(Event)]),
    "evenkeel_pending": (c_size_t, [c_void_p]),
    "evenkeel_fd": (c_int, [c_void_p]),
    "evenkeel_generate": (c_int, [c_void_p, POINTER(Request), POINTER(c_uint64)]),
    "evenkeel_chat": (c_int, [c_void_p, c_char_p, c_size_t, c_void_p, POINTER(c_uint64)]),
    "evenkeel_chat_tokens": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_int32), c_size_t, POINTER(c_size_t)]),
    "evenkeel_cancel": (None, [c_void_p, c_uint64]),
}


def _load() -> ctypes.CDLL:
    """The library that EVENKEEL_LIBRARY names, that of the package, or the system's."""
    named = os.environ.get("EVENKEEL_LIBRARY")
    file = "libevenkeel.0.dylib" if sys.platform == "darwin" else "libevenkeel.so.0"
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
    path = named or (beside if os.path.exists(beside) else file)
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as wrong:
        raise ImportError(f"evenkeel: {path} cannot be used: {wrong}") from None
    return library


lib = _load()
