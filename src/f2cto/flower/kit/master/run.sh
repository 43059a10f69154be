#!/usr/bin/env bash
# One selection with settings.toml; started again after anything was killed it goes on. Another --out is another run.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec f2cto federation run "$HERE" --settings settings.toml --out run "$@"
