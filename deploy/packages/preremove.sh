#!/bin/sh
# Of a deb: remove or upgrade. Of an rpm: how many versions remain.
# The locks in etcd stay: this ends who watches them, and no hold.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
command -v systemctl > /dev/null || exit 0
if [ -d /run/systemd/system ]; then
	systemctl stop @UNITS@
fi
systemctl --no-reload disable @UNITS@
