#!/bin/sh
# Run the tests that Python's version may change on every other Python from 3.11 on: those on PATH,
# and pyenv's. Each has an environment of its own beside .venv, made of the same lock.
set -eu
cd "$(dirname "$0")/.."
released='import sys
ok = sys.version_info.releaselevel == "final" and sys.implementation.name == "cpython"
sys.exit(not ok or "3." + sys.argv[1] != "%d.%d" % sys.version_info[:2])'
strict=${1-}
set --
ours=$(.venv/bin/python -c 'import sys; print(sys.version_info.minor)')
for minor in 11 12 13 14 15 16 17 18 19; do
	test "$minor" != "$ours" || continue
	for python in "$(command -v "python3.$minor" || :)" \
		"${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor."*/bin/python; do
		if "$python" -c "$released" "$minor" 2>/dev/null; then
			set -- "$@" "$minor" "$python"
			break
		fi
	done
done
test $# != 0 || echo "fedsched: this machine has no other Python from 3.11 on"
status=0
# All of them, also after one fails: who repairs wants the whole list.
while test $# != 0; do
	venv=.venv-3.$1 age=older
	test "$1" -lt "$ours" || age=between
	test $# != 2 || age=newest
	echo "fedsched: Python 3.$1: $2"
	make -s install VENV="$venv" PYTHON="$2" &&
		"$venv/bin/python" -m tools.run_tests --of-python "$age" $strict || status=1
	shift 2
done
exit $status
