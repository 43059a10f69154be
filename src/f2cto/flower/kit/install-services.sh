#!/usr/bin/env bash
# Writes the units of systemd/ with this folder's place in them: for the machine as root, else for this user. For the
# machine they run as the owner of the folder.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
if [ "$(id -u)" = 0 ]; then
  there=${1:-/etc/systemd/system} user=
  owner=$(stat -c %U "$HERE")
  if [ "$owner" = root ] && [ "${F2CTO_ALLOW_ROOT:-}" != 1 ]; then
    echo "$HERE belongs to root, and the services would run as root: give it to a user (chown -R USER), or say" \
      "F2CTO_ALLOW_ROOT=1." >&2
    exit 1
  fi
  chown -h "$owner:" "$FLWR_HOME"  # it may have been made by this script
else
  there=${1:-$HOME/.config/systemd/user} user=" --user" owner=
fi
mkdir -p "$there"
names=
for unit in systemd/*.service; do
  name=$(basename "$unit")
  names="$names $name"
  text=$(<"$unit")
  text=${text//@FOLDER@/$HERE}
  text=${text/@USER@/${owner:+User=$owner$'\n'}}
  printf '%s\n' "${text//@BIN@/$BIN}" >"$there/$name"
  chmod 644 "$there/$name"
done
echo "Written to $there. Start them now and at every boot with:"
echo "  systemctl$user daemon-reload"
echo "  systemctl$user enable --now$names"
[ -z "$user" ] || echo "  loginctl enable-linger   # so that they run while you are not logged in"
