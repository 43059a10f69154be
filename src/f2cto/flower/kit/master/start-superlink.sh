#!/usr/bin/env bash
# The SuperLink, which all messages go through. It listens on this machine only: who reaches it may run apps.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
safety=(--ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt --ssl-keyfile keys/server.key --enable-supernode-auth)
[ "$SECURE" = yes ] || safety=(--insecure)
exec flower-superlink --host 127.0.0.1 --port "$LINK_PORT" "${safety[@]}" --database state.db \
  --disable-runtime-dependency-installation "$@"
