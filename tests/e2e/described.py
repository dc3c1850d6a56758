"""Requests and replies beside /openapi.json: every member of a reply is described, and has the type that is said. What a
request names that is described has its type, where the server took it. Python standard library only."""
import json, os, re

SPEC = json.load(open(os.path.join(os.path.dirname(__file__), "..", "..", "web", "openapi.json")))
SHORT = ("/chat/", "/completions", "/responses", "/messages", "/models", "/conversations", "/tokenizer_info", "/fingerprint", "/receipts", "/audio/", "/tokenize", "/detokenize")
TYPES = {"string": str, "array": list, "object": dict, "boolean": bool, "null": type(None)}
seen = set()  # (method, path of the description, status)


def schema_of(ref):
    at = SPEC
    for key in ref.removeprefix("#/").split("/"):
        at = at[key]
    return at


def is_type(v, name):
    if name == "integer":
        return isinstance(v, int) and not isinstance(v, bool)
    if name == "number":
        return isinstance(v, (int, float)) and not isinstance(v, bool)
    return isinstance(v, TYPES[name])


def wrong(schema, v, where="", closed=False):
    """None, or what is wrong. closed: objects have no member but the described ones."""
    if "$ref" in schema:
        return wrong(schema_of(schema["$ref"]), v, where, closed)
    if "anyOf" in schema:
        all_ = [wrong(s, v, where, closed) for s in schema["anyOf"]]
        return None if None in all_ else f"{where}: none of {len(all_)}: " + "; ".join(all_)[:600]
    if "const" in schema and v != schema["const"]:
        return f"{where}: {v!r} is not {schema['const']!r}"
    if "enum" in schema and v not in schema["enum"]:
        return f"{where}: {v!r} is none of {schema['enum']}"
    types = schema.get("type")
    types = [types] if isinstance(types, str) else types
    if types and not any(is_type(v, t) for t in types):
        return f"{where}: {str(v)[:80]!r} is no {' or '.join(types)}"
    if isinstance(v, dict) and "properties" in schema:
        for key in schema.get("required", ()):
            if key not in v:
                return f"{where}: {key} is missing"
        for key, member in v.items():
            if key in schema["properties"]:
                why = wrong(schema["properties"][key], member, f"{where}.{key}", closed)
                if why:
                    return why
            elif closed:
                return f"{where}: {key} is not described in web/openapi.json"
    if isinstance(v, list) and "items" in schema:
        for i, item in enumerate(v):
            why = wrong(schema["items"], item, f"{where}[{i}]", closed)
            if why:
                return why
    return None


def path_of(target):
    """The described path that a target is on, or None."""
    path = target.partition("?")[0].rstrip("/") or "/"
    if path.startswith(SHORT):
        path = "/v1" + path
    if path in SPEC["paths"]:
        return path
    for pattern in SPEC["paths"]:
        if "{" in pattern and re.fullmatch(re.sub(r"\\{\w+\\}", ".+" if pattern in ("/v1/models/{model}", "/v1/receipts/{id}") else "[^/]+", re.escape(pattern)), path):
            return pattern
    return None


def reply_schema(method, path, status, kind="application/json"):
    responses = SPEC["paths"][path][method.lower().replace("head", "get")]["responses"]
    return responses.get(str(status), responses["default"])["content"].get(kind, {}).get("schema")


def check(method, target, status, body, reply):
    """Raises where a whole reply is not what is described. body: of the request, as JSON; None where it is none."""
    path = path_of(target)
    if not path or method.lower() not in SPEC["paths"][path]:
        assert status >= 400 or method in ("OPTIONS", "HEAD"), f"{method} {target}: status {status}, and it is not described"
        return
    seen.add((method, path, status))
    operation = SPEC["paths"][path][method.lower()]
    schema = reply_schema(method, path, status)
    why = wrong(schema, reply, "reply", closed=True) if schema else None
    assert not why, f"{method} {target}: status {status}: {why}"
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content and status < 300 and body is not None:
        why = wrong(content["schema"], body, "body")
        assert not why, f"{method} {target} was taken: {why}"


def check_event(path, event, kind="text/event-stream"):
    """The same of an event of a stream."""
    schema = reply_schema("POST", path, 200, kind)
    why = wrong(schema, event, "event", closed=True)
    if why and "error" in event:
        return
    assert not why, f"{path}: {why}"
