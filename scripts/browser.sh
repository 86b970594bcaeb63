#!/bin/sh
# Chromium for the page's tests, and Firefox as a second engine: Debian's, where they may be installed. Without them
# those tests are skipped and say so.
for browser in chromium firefox-esr; do
	command -v $browser >/dev/null && continue
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "no $browser: its tests of the page will be skipped (as root on Debian: apt-get install $browser)"
		continue
	fi
	echo "installing $browser for the page's tests (apt-get install $browser)"
	(apt-get update -qq && apt-get install -y -qq $browser) >/dev/null 2>&1 ||
		echo "$browser cannot be installed here: its tests of the page will be skipped"
done
