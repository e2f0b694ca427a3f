#!/bin/sh
# Puts Debian's Python 3.14 into a folder, beside this system's own Python and libraries: for tests
# of what only 3.14 has. It brings the C library it needs.
#
# sh tests/python3.14.sh FOLDER, then EVERYCALL_PYTHON_3_14=FOLDER/usr/bin/python3.14. Needs apt-get,
# dpkg-deb and patchelf; about 100 MB.
set -eu
[ $# = 1 ] || { echo "usage: sh $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
python=$folder/usr/bin/python3.14
[ ! -x "$python" ] || { "$python" --version; exit 0; }
command -v patchelf >/dev/null || { echo "needs patchelf: apt-get install patchelf" >&2; exit 1; }

# The system's own server and keys, and another release.
apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/empty"
server=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
keys=$(ls /usr/share/keyrings/debian-archive-keyring.*pg | head -n 1)
: >"$apt/status"
get() {
    apt-get -qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts="$apt/empty" \
        -o Dir::Etc::PreferencesParts="$apt/empty" -o Dir::State::Lists="$apt/lists" \
        -o Dir::State::Status="$apt/status" -o Dir::Cache="$apt" -o Dir::Cache::Archives="$apt/archives" \
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false "$@"
}
for release in forky sid; do
    echo "deb [signed-by=$keys] $server $release main" >"$apt/sources.list"
    get update
    if get --download-only -y install python3.14; then
        (cd "$apt/archives" && get download libpython3.14-dev)
        break
    fi
done

# Where dpkg would have them in this system: /lib and /lib64 are links into /usr.
mkdir -p "$folder/usr/lib" "$folder/usr/lib64"
ln -sfn usr/lib "$folder/lib"
ln -sfn usr/lib64 "$folder/lib64"
for package in "$apt"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --keep-directory-symlink \
        --exclude='./usr/share/doc' --exclude='./usr/share/man' --exclude='./usr/share/locale'
done
rm -r "$apt"
libraries=$folder/usr/lib/x86_64-linux-gnu
patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libraries" "$python"
"$python" --version
