#!/bin/sh
# The router of vLLM's production stack (pip install vllm-router) before three replicas of evenkeel, without Kubernetes.
# Change: the replicas, the model's name as /v1/models has it. It reads /metrics of each by vLLM's older names.
# Turns of one conversation go to one replica, by the header x-session-id.
exec "${VLLM_ROUTER:-vllm-router}" --host 127.0.0.1 --port "${PORT:-8001}" \
  --service-discovery static \
  --static-backends "${BACKENDS:-http://127.0.0.1:8081,http://127.0.0.1:8082,http://127.0.0.1:8083}" \
  --static-models "${MODELS:-pocket,pocket,pocket}" \
  --static-backend-health-checks --static-model-types chat,chat,chat \
  --static-backend-health-check-interval "${INTERVAL:-5}" --static-backend-health-check-timeout-seconds 5 \
  --max-instance-failover-reroute-attempts 2 \
  --engine-stats-interval 10 \
  --routing-logic session --session-key x-session-id
