#!/usr/bin/env bash
# Tells the SuperLink the sites' public keys; nodes with other keys are refused. It may be run again.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
for key in keys/sites/*.pub; do
  name=$(basename "$key" .pub)
  for attempt in 1 2 3 4 5 6; do  # the SuperLink may just be starting
    said=$(./flwr.sh supernode register "$key" here --name "$name" --format json 2>&1) || true
    case "$said" in
      *'"success": true'*) echo "$name is registered." && break ;;
      *'already in use'*) echo "$name was registered before." && break ;;
    esac
    if [ "$attempt" = 6 ]; then
      echo "Could not register $name: $said" >&2
      exit 1
    fi
    sleep 2
  done
done
