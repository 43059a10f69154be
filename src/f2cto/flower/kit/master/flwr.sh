#!/usr/bin/env bash
# Flower's own command with this federation's settings, e.g. ./flwr.sh ls here, ./flwr.sh supernode list here
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
# Flower wants the certificate's whole path; it is written anew each time, because folders move.
new=$(mktemp "$FLWR_HOME/config.XXXXXX")
{
  printf '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:%s"\n' "$LINK_PORT"
  if [ "$SECURE" = yes ]; then printf 'root-certificates = "%s/keys/ca.crt"\n' "$HERE"; else printf 'insecure = true\n'; fi
} >"$new"
mv "$new" "$FLWR_HOME/config.toml"
exec flwr "$@"
