#!/bin/sh
# Of a deb: configure [version before]. Of an rpm: how many versions are installed now.
# Starts nothing for the first time: the settings that come with the package are examples.
set -e
systemd-sysusers @PACKAGE@.conf
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1 $2" in
configure\ ?* | [2-9]*)
	systemctl try-restart @UNITS@ || echo '@PACKAGE@: a service did not start again: systemctl status @UNITS@' >&2
	;;
esac
