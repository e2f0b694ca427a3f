#!/bin/sh
# Builds the oracle as a kit into FOLDER: build.sh FOLDER
set -eu
here=$(dirname "$0")
out=$1
mkdir -p "$out"
flags="-O2 -fPIC -fvisibility=hidden -ftls-model=initial-exec -mgeneral-regs-only -fno-stack-protector -fcf-protection=none -Wall -Wextra -Werror"
for part in rt module; do
    define=
    [ $part = rt ] && define=-DORACLE_MAIN
    gcc $flags $define -c "$here/oracle.c" -o "$out/$part-c.o"
    gcc $flags $define -c "$here/hooks.S" -o "$out/$part-s.o"
    ld -r "$out/$part-c.o" "$out/$part-s.o" -o "$out/everycall-$part.o"
    rm "$out/$part-c.o" "$out/$part-s.o"
done
printf '{ everycall_runtime_v1; };\n' > "$out/everycall-exports.list"
