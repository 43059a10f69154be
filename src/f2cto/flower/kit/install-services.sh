#!/usr/bin/env bash
# Writes the units of systemd/ with this folder's place in them: for the machine as root, else for this user.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
if [ "$(id -u)" = 0 ]; then
  there=${1:-/etc/systemd/system} user=
else
  there=${1:-$HOME/.config/systemd/user} user=" --user"
fi
mkdir -p "$there"
names=
for unit in systemd/*.service; do
  name=$(basename "$unit")
  names="$names $name"
  text=$(<"$unit")
  text=${text//@FOLDER@/$HERE}
  printf '%s\n' "${text//@BIN@/$BIN}" >"$there/$name"
  chmod 644 "$there/$name"
done
echo "Written to $there. Start them now and at every boot with:"
echo "  systemctl$user daemon-reload"
echo "  systemctl$user enable --now$names"
[ -z "$user" ] || echo "  loginctl enable-linger   # so that they run while you are not logged in"
