#!/usr/bin/env bash
# Tells the SuperLink the sites' public keys, once; nodes with other keys are refused.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
for key in keys/sites/*.pub; do
  name=$(basename "$key" .pub)
  if [ -e "keys/sites/$name.registered" ]; then
    echo "$name was registered before."
    continue
  fi
  # The SuperLink may just be starting.
  for attempt in 1 2 3 4 5 6; do
    if said=$(./flwr.sh supernode register "$key" here --name "$name" --format json 2>&1); then break; fi
    [ "$attempt" -lt 6 ] || { echo "Could not register $name: $said" >&2; exit 1; }
    sleep 2
  done
  case "$said" in
    *'"success": true'*|*'"success":true'*) ;;
    *) echo "Could not register $name: $said" >&2; exit 1 ;;
  esac
  printf '%s\n' "$said" >"keys/sites/$name.registered"
  echo "$name is registered."
done
