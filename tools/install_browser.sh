#!/usr/bin/env bash
# Install Debian's chromium and playwright, which the browser tests need: `make browser`.
#
# Ends with 0 when both are there, and with 3, after a line that says why, where they cannot be
# installed: there is no apt-get, no right to use it, or no network. Everything that waits for a
# network has a limit. Anything else that fails is an error, and with BROWSER_REQUIRED=1 so is this.
set -uo pipefail
cd "$(dirname "$0")/.."
BIN=.venv/bin

cannot() {
  echo "browser: cannot be installed here: $*"
  [ "${BROWSER_REQUIRED:-0}" = 1 ] && exit 1
  exit 3
}

found() {
  command -v chromium || command -v chromium-browser || command -v google-chrome
}

if ! found >/dev/null; then
  command -v apt-get >/dev/null || cannot "there is no chromium, and no apt-get to install it with"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || cannot "there is no chromium, and apt-get needs root or sudo"
    as_root=(sudo -n)
  fi
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=1
    -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=60 -o APT::Update::Error-Mode=any)
  timeout 120 "${apt[@]}" update </dev/null >/dev/null 2>&1 ||
    cannot "apt-get cannot fetch its lists of packages (is there a network?)"
  apt-cache show chromium >/dev/null 2>&1 || cannot "apt has no package chromium"
  timeout 600 "${apt[@]}" install -y --download-only chromium </dev/null >/dev/null 2>&1 ||
    cannot "apt-get cannot download chromium within 10 minutes"
  "${apt[@]}" install -y chromium </dev/null >/dev/null || exit 1
  if ! found >/dev/null; then
    echo "browser: apt-get says that it installed chromium, but there is none"
    exit 1
  fi
fi

if ! $BIN/python -c "import playwright" 2>/dev/null; then
  pip=("$BIN/pip" --quiet --disable-pip-version-check --retries 1 --timeout 20)
  "${pip[@]}" install -c constraints.txt playwright >/dev/null 2>&1 ||
    cannot "pip cannot install playwright (is there a network?)"
  $BIN/python -c "import playwright" || exit 1
fi
