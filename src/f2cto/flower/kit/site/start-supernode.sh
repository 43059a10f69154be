#!/usr/bin/env bash
# The node that brings the master's questions to the site's process and its answers back.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
. "$HERE/site.conf"
safety=(--root-certificates ca.crt --auth-supernode-private-key site.key)
[ "$SECURE" = yes ] || safety=(--insecure)
child=
ended=
trap 'ended=yes; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true' TERM INT
# After a crash the SuperLink takes the node for connected for up to a minute and refuses it meanwhile: we try again.
began=$SECONDS
while :; do
  started=$SECONDS
  flower-supernode --superlink "$SUPERLINK" "${safety[@]}" --host 127.0.0.1 --port "$NODE_PORT" \
    --node-config "socket=\"${SOCKET:-$HERE/site.sock}\" number=$NUMBER" "$@" &
  child=$!
  code=0
  wait "$child" || code=$?
  [ -z "$ended" ] || { wait "$child" || true; exit 0; }
  [ $((SECONDS - started)) -lt 60 ] || began=$SECONDS  # it was up; this is another crash
  if [ $((SECONDS - began)) -ge "${RETRY:-120}" ]; then
    echo "The node ended with code $code; what is above says why. Is its key registered (register-sites.sh)?" >&2
    exit 1
  fi
  echo "The node ended with code $code; trying again." >&2
  sleep 3 &
  wait $! || true
done
