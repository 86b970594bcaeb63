#!/bin/sh
# Chromium for the page's tests: Debian's, where it may be installed. Without it those tests are skipped and say so.
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "no Chromium: the page's tests will be skipped (as root on Debian: apt-get install chromium)"
	exit 0
fi
echo "installing Chromium for the page's tests (apt-get install chromium)"
(apt-get update -qq && apt-get install -y -qq chromium) >/dev/null 2>&1 ||
	echo "Chromium cannot be installed here: the page's tests will be skipped"
