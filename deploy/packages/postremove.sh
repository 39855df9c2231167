#!/bin/sh
# Of a deb: remove, upgrade or purge. Of an rpm: how many versions remain.
# Users stay, because files of theirs may; certificates, keys and passwords in /etc/unlocker stay, because an operator put
# them there.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
	fi
	;;
purge)
	rm -rf @STATE@
	rmdir /etc/unlocker 2> /dev/null || true
	;;
esac
