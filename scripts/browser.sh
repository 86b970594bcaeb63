#!/bin/sh
# Chromium for the page's tests, and Firefox as a second engine: Debian's, where they may be installed; axe-core and
# Pyodide from npm. Without them those tests are skipped and say so.
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
if [ ! -d node_modules/pyodide ] || [ ! -d node_modules/axe-core ]; then
	if command -v npm >/dev/null; then
		echo "installing axe-core and Pyodide for the page's tests (npm ci)"
		npm ci --silent --no-audit --no-fund >/dev/null 2>&1 ||
			echo "npm ci failed: tests of accessibility and of the page that runs by itself will be skipped"
	else
		echo "no npm: tests of accessibility and of the page that runs by itself will be skipped"
	fi
fi
