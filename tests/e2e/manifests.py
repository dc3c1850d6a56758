#!/usr/bin/env python3
"""deploy/kubernetes, deploy/llm-d and deploy/vllm-router.sh, without a cluster: manifests.py PROGRAM MODEL

Schemas of Kubernetes are fetched by the validators that exist (kubeconform), and none is in Debian. So what these files use is written
down here, from the API references: every field that may stand somewhere, its type, and which are needed; anything else is a mistake. Then
what refers to something else must find it: selectors, ports by name, probes on paths that the program answers, options it has, times
that fit each other. Needs python3-yaml. Closes with `N passed, N failed`."""
import ipaddress, json, os, re, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import yaml
from client import Server
from counted import check, closing

PROGRAM, MODEL = sys.argv[1:3]

# A dict: fields, those with ! are needed. [x]: a list, not empty. {"*": x}: a map. A type. A set: one of these values. A text: a pattern.
NAME, QUANTITY = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", r"[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti)?"
PORT = (int, str)
LABELS = {"*": r"[A-Za-z0-9]?[-A-Za-z0-9_.]*"}
META = {"name!": NAME, "labels": LABELS, "namespace": NAME}
SELECTOR = {"matchLabels!": LABELS}
PROBE = {"httpGet!": {"path!": "/.*", "port!": PORT}, "periodSeconds": int, "failureThreshold": int, "timeoutSeconds": int,
         "initialDelaySeconds": int}
CONTAINER = {"name!": NAME, "image!": r"[a-z0-9./_-]+:[A-Za-z0-9._-]+", "args": [str],
             "env": [{"name!": r"[A-Z_]+", "value": str, "valueFrom": {"fieldRef!": {"fieldPath!": {"status.podIP", "metadata.name", "metadata.namespace"}}}}],
             "ports": [{"name!": r"[a-z0-9-]{1,15}", "containerPort!": int, "protocol": {"TCP"}}],
             "startupProbe": PROBE, "readinessProbe": PROBE, "livenessProbe": PROBE,
             "resources": {"requests": {"*": QUANTITY}, "limits": {"*": QUANTITY}},
             "securityContext": {"allowPrivilegeEscalation": bool, "readOnlyRootFilesystem": bool, "capabilities": {"drop!": [str]}},
             "volumeMounts": [{"name!": NAME, "mountPath!": "/.*", "readOnly": bool}]}
POD = {"metadata!": {"labels!": LABELS},
       "spec!": {"containers!": [CONTAINER], "terminationGracePeriodSeconds": int, "automountServiceAccountToken": bool,
                 "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int, "fsGroup": int, "seccompProfile": {"type!": {"RuntimeDefault"}}},
                 "volumes": [{"name!": NAME, "persistentVolumeClaim": {"claimName!": NAME, "readOnly": bool}, "emptyDir": {"sizeLimit": QUANTITY}}]}}
KINDS = {
    ("apps/v1", "Deployment"): {"replicas": int, "selector!": SELECTOR, "template!": POD,
                                "strategy": {"rollingUpdate!": {"maxUnavailable": int, "maxSurge": int}}},
    ("v1", "Service"): {"selector!": LABELS, "ports!": [{"name!": NAME, "port!": int, "targetPort": PORT}], "clusterIP": {"None"}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {"podSelector!": SELECTOR, "policyTypes": [{"Ingress"}],
                                                "ingress": [{"ports": [{"port!": PORT}], "from": [{"podSelector!": SELECTOR}]}]},
    ("monitoring.coreos.com/v1", "PodMonitor"): {"selector!": SELECTOR,
                                                 "podMetricsEndpoints!": [{"port!": str, "path": "/.*", "interval": r"[0-9]+s"}]},
    ("inference.networking.k8s.io/v1", "InferencePool"): {"selector!": SELECTOR, "targetPorts!": [{"number!": int}],
                                                          "endpointPickerRef!": {"name!": NAME, "port!": {"number!": int}, "group": str, "kind": {"Service"},
                                                                                 "failureMode": {"FailOpen", "FailClose"}}},
}


def faults(value, schema, at):
    if isinstance(schema, dict) and "*" in schema:
        if not isinstance(value, dict):
            return [f"{at} is no map"]
        return [f for k, v in value.items() for f in faults(v, schema["*"], f"{at}.{k}")]
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{at} is no object"]
        known = {k.rstrip("!"): s for k, s in schema.items()}
        out = [f"{at}.{k} is not known" for k in value if k not in known]
        out += [f"{at}.{k[:-1]} is missing" for k in schema if k.endswith("!") and k[:-1] not in value]
        return out + [f for k, v in value.items() if k in known for f in faults(v, known[k], f"{at}.{k}")]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{at} is no list, or empty"]
        return [f for i, v in enumerate(value) for f in faults(v, schema[0], f"{at}[{i}]")]
    if isinstance(schema, set):
        return [] if value in schema else [f"{at} is {value!r}"]
    if isinstance(schema, str):
        return [] if isinstance(value, str) and re.fullmatch(schema, value) else [f"{at} is {value!r}"]
    good = isinstance(value, schema) and (schema is bool or not isinstance(value, bool))
    return [] if good else [f"{at} is {value!r}"]


def faults_of(doc):
    kind = doc.get("apiVersion"), doc.get("kind")
    if kind not in KINDS:
        return [f"{kind} is not known"]
    return faults(doc, {"apiVersion!": str, "kind!": str, "metadata!": META, "spec!": KINDS[kind]}, kind[1])


def the_validator_sees(docs):
    """It would be of no use if it took everything."""
    def spoilt(change):
        copy = yaml.safe_load(yaml.safe_dump(docs[0]))
        change(copy)
        return faults_of(copy)
    pod = lambda d: d["spec"]["template"]["spec"]["containers"][0]
    cases = [lambda d: d["spec"].pop("selector"), lambda d: d["spec"].update(replica=3), lambda d: d["spec"].update(replicas="3"),
             lambda d: pod(d)["readinessProbe"]["httpGet"].update(path="ready"), lambda d: pod(d)["ports"][0].update(containerPort="8080"),
             lambda d: pod(d).update(args=[1]), lambda d: d.update(apiVersion="apps/v2"), lambda d: pod(d)["resources"]["limits"].update(memory="32 GB"),
             lambda d: pod(d).update(ports=[]), lambda d: d["metadata"].update(name="Even Keel")]
    check("the validator sees mistakes", all(spoilt(c) for c in cases), [i for i, c in enumerate(cases) if not spoilt(c)])


def of(docs, kind):
    found = [d for d in docs if d["kind"] == kind]
    assert len(found) == 1, kind
    return found[0]["spec"]


def options():
    text = subprocess.run([PROGRAM, "serve", "--help-all"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(--[a-z][a-z-]+)", text))


def seconds(args, name, default):
    return int(next((a.split("=")[1] for a in args if a.startswith(f"--{name}=")), default))


def kubernetes(s):
    docs = list(yaml.safe_load_all(open("deploy/kubernetes/evenkeel.yaml")))
    for d in docs:
        check(f"{d['kind']}", not faults_of(d), faults_of(d))
    check("all kinds", {d["kind"] for d in docs} == {k for _, k in KINDS}, [d["kind"] for d in docs])
    the_validator_sees(docs)
    deployment = of(docs, "Deployment")
    labels, pod = deployment["template"]["metadata"]["labels"], deployment["template"]["spec"]
    c = pod["containers"][0]
    for kind, selector in (("Deployment", "selector"), ("PodMonitor", "selector"), ("InferencePool", "selector"), ("NetworkPolicy", "podSelector")):
        want = of(docs, kind)[selector]["matchLabels"]
        check(f"{kind} selects the pods", want.items() <= labels.items(), want)
    check("Service selects the pods", of(docs, "Service")["selector"].items() <= labels.items())
    ports = {p["name"]: p["containerPort"] for p in c["ports"]}
    named = [of(docs, "Service")["ports"][0]["targetPort"], of(docs, "PodMonitor")["podMetricsEndpoints"][0]["port"],
             *[p["port"] for rule in of(docs, "NetworkPolicy")["ingress"] for p in rule["ports"]], *[c[k]["httpGet"]["port"] for k in ("startupProbe", "readinessProbe", "livenessProbe")]]
    check("ports by name", all(n in ports for n in named), (named, ports))
    check("the pool's port", of(docs, "InferencePool")["targetPorts"][0]["number"] == ports["http"] == 8080)
    have = options()
    check("options", all(a.split("=")[0] in have for a in c["args"]), [a for a in c["args"] if a.split("=")[0] not in have])
    check("ports of events", f"--kv-events=tcp://*:{ports['kv-events']},name=$(POD_IP):8080" in c["args"] and f"--kv-replay=tcp://*:{ports['kv-replay']}" in c["args"], c["args"])
    used = {m for a in c["args"] for m in re.findall(r"\$\((\w+)\)", a)}
    check("variables", used <= {e["name"] for e in c["env"]} and used, used)
    check("time to drain", pod["terminationGracePeriodSeconds"] > seconds(c["args"], "drain-timeout", 60) + 10)
    check("mounts", {m["name"] for m in c["volumeMounts"]} <= {v["name"] for v in pod["volumes"]})
    check("the model is mounted", any(a.startswith(f"--model={m['mountPath']}/") for m in c["volumeMounts"] for a in c["args"]))
    for probe, path in (("startupProbe", "/ready"), ("readinessProbe", "/ready"), ("livenessProbe", "/health")):
        check(probe, c[probe]["httpGet"]["path"] == path and s.call("GET", path)[0] == 200)
    check("what is scraped", "evenkeel_requests_running" in s.metrics())


def llm_d(s):
    """The rules of file-discovery, references between plugins, and what the picker asks of a replica."""
    endpoints = yaml.safe_load(open("deploy/llm-d/endpoints.yaml"))["endpoints"]
    check("endpoints", len(endpoints) >= 2 and len({e["name"] for e in endpoints}) == len(endpoints), endpoints)
    for e in endpoints:
        check(f"endpoint {e['name']}", set(e) <= {"name", "namespace", "address", "port", "labels"} and isinstance(e["port"], str) and
              0 < int(e["port"]) < 65536 and ipaddress.IPv4Address(e["address"]), e)
    config = yaml.safe_load(open("deploy/llm-d/epp.yaml"))
    check("kind", (config["apiVersion"], config["kind"]) == ("llm-d.ai/v1alpha1", "EndpointPickerConfig"))
    plugins = {p.get("name", p["type"]): p for p in config["plugins"]}
    refs = [config["dataLayer"]["discovery"]["pluginRef"]]
    for source in config["dataLayer"]["sources"]:
        refs += [source["pluginRef"], *[x["pluginRef"] for x in source["extractors"]]]
    refs += [p["pluginRef"] for profile in config["schedulingProfiles"] for p in profile["plugins"]]
    refs.append(plugins["prefix-cache-scorer"]["parameters"]["prefixMatchInfoProducerName"])
    check("references", all(r in plugins for r in refs) and len(plugins) == len(config["plugins"]), [r for r in refs if r not in plugins])
    precise = plugins["precise-prefix-cache-producer"]["parameters"]
    block = int(re.search(r'vllm:cache_config_info\{block_size="(\d+)"', metrics(s))[1])
    check("block size", precise["tokenProcessorConfig"]["blockSize"] == block == 64, (precise, block))
    sockets = precise["kvEventsConfig"]["podDiscoveryConfig"]
    comment = open("deploy/llm-d/endpoints.yaml").read()
    for e in endpoints:
        line = f"--host {e['address']} --port {e['port']} --kv-events @tcp://{e['address']}:{sockets['socketPort']} --kv-replay tcp://{e['address']}:{sockets['replaySocketPort']}"
        check(f"how {e['name']} is started", line in comment, line)
    url = plugins["token-producer"]["parameters"]["vllm"]["url"]
    check("who renders", any(url == f"http://{e['address']}:{e['port']}" for e in endpoints), url)
    body = {"model": "pocket", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    status, _, reply = s.call("POST", "/v1/chat/completions/render", body)
    check("render", status == 200 and all(isinstance(t, int) for t in reply["token_ids"]) and set(reply) == {"token_ids"}, reply)
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"):
        check(name, re.search(rf"^{name}\{{[^}}]*\}} [0-9.e+-]+$", metrics(s), re.M))


def metrics(s):
    c = s.open()
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return text


def vllm_router(s):
    """What the script says to the router, and what the router asks of a replica."""
    r = subprocess.run(["deploy/vllm-router.sh"], env=dict(os.environ, VLLM_ROUTER="echo", PORT="8123"), capture_output=True, text=True, check=True)
    words = r.stdout.split()
    value = {w: words[i + 1] for i, w in enumerate(words[:-1]) if w.startswith("--") and not words[i + 1].startswith("--")}
    n = [len(value[k].split(",")) for k in ("--static-backends", "--static-models", "--static-model-types")]
    check("a model and a type for each replica", n == [3, 3, 3], n)
    check("a lost replica's requests go to the others", int(value["--max-instance-failover-reroute-attempts"]) == 2 and int(value["--static-backend-health-check-interval"]) <= 10,
          value)
    check("sessions", value["--routing-logic"] == "session" and value["--session-key"] == "x-session-id" and value["--port"] == "8123", value)
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_hit_rate",
                 "vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total"):
        check(name, re.search(rf"^{name}\{{[^}}]*\}} [0-9.e+-]+$", metrics(s), re.M))
    status, _, reply = s.call("POST", "/tokenize", {"model": "pocket", "prompt": "Hello"})
    check("tokenize", status == 200 and len(reply["tokens"]) == reply["count"], reply)
    status, _, reply = s.call("POST", "/v1/chat/completions", {"model": "pocket", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3, "temperature": 0})
    check("its health check", status == 200, reply)


def grafana(s):
    """Each panel of deploy/grafana.json asks for numbers that /metrics has, by their types; panels do not overlap."""
    board = json.load(open("deploy/grafana.json"))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", metrics(s), re.M))
    used, spots = set(), set()
    for panel in board["panels"]:
        spots.add((panel["gridPos"]["x"], panel["gridPos"]["y"]))
        for target in panel["targets"]:
            for before, name in re.findall(r"(rate\()?\b((?:evenkeel|process)_[a-z_]+)\{", target["expr"]):
                base = name.removesuffix("_bucket")
                check(f"{panel['title']}: {name}", types.get(base) == ("histogram" if base != name else "counter" if before or name.endswith("_total") else "gauge"),
                      types.get(base))
                used.add(base)
    check("panels", len(spots) == len(board["panels"]) == len({p["id"] for p in board["panels"]}) and len(used) > 20, used)
    (query,) = [v["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    check("the list of servers", query == "label_values(evenkeel_info, instance)" and "evenkeel_info" in types, query)


def smg(s):
    """How SMG finds out what serves here: owned_by, else /version."""
    models = s.call("GET", "/v1/models")[2]["data"]
    found = models[0]["owned_by"] in ("vllm", "sglang") or s.call("GET", "/version")[0] == 200
    check("SMG takes it for one of vLLM's kind", found)
    check("what SMG reads of a model", all(k in models[0] for k in ("id", "root", "max_model_len", "owned_by")), models[0])


if __name__ == "__main__":
    with Server(PROGRAM, "--model", MODEL) as server:
        deadline = time.time() + 60
        while server.call("GET", "/ready")[0] != 200 and time.time() < deadline:
            time.sleep(0.05)
        for step in (kubernetes, llm_d, vllm_router, smg, grafana):
            step(server)
    sys.exit(closing())
