#!/usr/bin/env bash
# The only door from outside: it lets through what nodes send, and nothing that could start or change a run.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec f2cto federation gate "$HERE" --listen "$GATE" --port "$GATE_PORT" --to "$LINK_PORT" "$@"
