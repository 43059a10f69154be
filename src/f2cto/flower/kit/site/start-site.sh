#!/usr/bin/env bash
# The process that holds this site's data. site.conf says which they are; options of `f2cto site` may follow.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
. "$HERE/site.conf"
if [ -z "$DATA" ]; then
  echo "Say in $HERE/site.conf which data this site takes part with: DATA=/path/of/file." >&2
  exit 1
fi
exec f2cto site --data "$DATA" ${LABEL:+--label "$LABEL"} --schema schema.json --number "$NUMBER" \
  --socket "${SOCKET:-$HERE/site.sock}" --folder work ${OPTIONS[@]+"${OPTIONS[@]}"} "$@"
