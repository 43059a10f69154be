# Read by the scripts beside it: where things are, and Flower's own settings.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/federation.conf"
BIN=${F2CTO_BIN:-$BIN}  # the folder with f2cto and flower-superlink; F2CTO_BIN=/path/to/venv/bin says another one
export PATH="$BIN:$PATH"  # Flower starts its own programs by their bare names
if ! command -v f2cto >/dev/null || ! command -v flower-superlink >/dev/null; then
  echo "f2cto and Flower are not in $BIN: pip install 'f2cto[flower]', then say F2CTO_BIN=/path/to/venv/bin." >&2
  exit 1
fi
export FLWR_HOME="$HERE/flwr"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=${FLWR_SUPEREXEC_TASK_POLL_INTERVAL:-0.2}  # seconds; Flower's own is 1
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
umask 077
mkdir -p "$FLWR_HOME"
cd "$HERE"
