#!/bin/sh
# Installs this folder as a systemd service, below /opt and /usr/local; docs/portable.md says what goes where. Changes
# nothing where it refuses. POSIX sh: the host may have no other.
set -eu
umask 022

usage() {
    cat <<'TEXT'
usage: install.sh [--prefix DIR]
       install.sh --uninstall [--purge] [--prefix DIR]

  --prefix DIR   where the programs go, each version in a folder of its own (default: /opt/ingero)
  --uninstall    stop the service and take away what was installed; configuration and events stay
  --purge        with --uninstall: configuration, events and users too
TEXT
}

fail() {
    echo "install.sh: $1" >&2
    [ -z "${2:-}" ] || echo "hint: $2" >&2
    exit 1
}

note() {
    echo "install.sh: $1" >&2
}

prefix=/opt/ingero uninstall='' purge=''
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix)
            [ $# -gt 1 ] || { usage >&2; exit 2; }
            prefix=$2
            shift
            ;;
        --uninstall) uninstall=yes ;;
        --purge) purge=yes ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            usage >&2
            exit 2
            ;;
    esac
    shift
done
[ -z "$purge" ] || [ -n "$uninstall" ] || { usage >&2; exit 2; }

services='ingerod.service ingero-relay.service'
sockets='ingerod-spans.socket ingerod-annotate.socket ingerod-control.socket ingerod-mcp.socket ingerod-relay.socket'
units=/usr/local/lib/systemd/system
config=/etc/ingero/ingerod.conf
state=/var/lib/ingero
list=$prefix/installed-files
place=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)

# What nobody but root can change is run by root and as the service.
check_prefix() {
    case "$prefix" in
        /*) ;;
        *) fail "the prefix is not an absolute path: $prefix" ;;
    esac
    # These have a meaning in unit files, and a newline ends a line of our list.
    case "$prefix" in
        *[!A-Za-z0-9/._+-]* | */../* | */.. | */./* | */. | *//* | */)
            fail "invalid --prefix: $prefix" "use letters, digits and / . _ + - only, without . or .. as a part" ;;
        /usr/local/?*/?* | /usr/local/ingero) ;;
        /usr | /usr/* | /etc | /etc/* | /bin | /sbin | /lib | /lib64 | /var | /opt | /proc/* | /sys/* | /dev/*)
            fail "the prefix is a folder of the system: $prefix" "--prefix /opt/ingero" ;;
        /home | /home/* | /root | /root/* | /run/* | /tmp | /tmp/* | /var/tmp/*)
            fail "the service cannot see $prefix" "its sandbox hides the folders of users and of temporary files" ;;
    esac
    folder=$prefix
    while [ "$folder" != / ]; do
        if [ -e "$folder" ]; then
            if [ ! -d "$folder" ] || [ -L "$folder" ]; then fail "$folder is no folder"; fi
            # shellcheck disable=SC2012  # stat differs between systems, ls -n does not
            ls -ldn "$folder" | awk '{ exit !($1 ~ /^d....-..-/ && $3 == 0) }' ||
                fail "$folder must be root's, and not writable for its group or others" \
                    "chown root and chmod go-w, or another --prefix"
        fi
        folder=$(dirname "$folder")
    done
}

# ours FOLDER: a version that was installed.
ours() {
    [ ! -L "$1" ] && [ -e "$1/share/system/ingerod.service" ]
}

check_host() {
    [ "$(id -u)" = 0 ] || fail "installing a service needs root" "run it with sudo"
    [ -d /run/systemd/system ] || fail "systemd does not run here" "README.txt says how to start ingerod by hand"
    for program in systemctl systemd-sysusers systemd-tmpfiles; do
        command -v "$program" >/dev/null || fail "$program is missing"
    done
    # CAP_BPF in units, and sockets that stop with the service.
    version=$(systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 249 ] || fail "this is systemd ${version:-of no known version}; the units need 249"
}

check_no_package() {
    for file in /usr/sbin/ingerod /usr/lib/systemd/system/ingerod.service /lib/systemd/system/ingerod.service; do
        [ ! -e "$file" ] || fail "a package of ingero is installed: $file" "remove it first; its configuration and events stay"
    done
    for file in /usr/local/bin/ingeroctl /usr/local/sbin/ingerod; do
        if [ -e "$file" ] && [ ! -L "$file" ]; then fail "$file was not installed by this script" "move it away"; fi
    done
    if [ -e "$prefix" ] && [ ! -e "$list" ] && [ -n "$(ls -A "$prefix")" ]; then
        fail "$prefix is not empty, and is no installation of Ingero" "give a --prefix of its own"
    fi
    unit=$units/ingerod.service
    if [ -e "$unit" ] && ! grep -q "^ExecStart=$prefix/current/" "$unit"; then
        fail "it is installed below another prefix: $(sed -n 's/^ExecStart=//p' "$unit")" "uninstall that first, or give its --prefix"
    fi
}

reload_system() {
    systemctl daemon-reload
    journalctl --update-catalog >/dev/null 2>&1 || :
    # The bus reads new policies by itself in most versions.
    systemctl reload dbus.service >/dev/null 2>&1 || systemctl reload dbus-broker.service >/dev/null 2>&1 || :
}

# put MODE SOURCE TARGET: whole or not at all, and noted before it is there.
put() {
    mkdir -p "$(dirname "$3")"
    grep -qxF "$3" "$list" 2>/dev/null || echo "$3" >>"$list"
    cp "$2" "$3.ingero-new"
    chmod "$1" "$3.ingero-new"
    mv -f "$3.ingero-new" "$3"
}

# of_prefix SOURCE TARGET: a file that names programs, naming those below the prefix.
of_prefix() {
    sed -e "s|^\(Exec[A-Za-z]*=\)/usr/\(s\{0,1\}bin\)/|\1$prefix/current/\2/|" "$1" >"$scratch/file"
    put 0644 "$scratch/file" "$2"
}

link() {
    mkdir -p "$(dirname "$2")"
    grep -qxF "$2" "$list" 2>/dev/null || echo "$2" >>"$list"
    ln -sfn "$1" "$2"
}

install_tree() {
    case "$place/" in
        "$prefix"/*) fail "the archive is unpacked inside the prefix: $place" "unpack it somewhere else" ;;
    esac
    rm -rf "$prefix/$version.new" "$prefix/$version.old"
    mkdir -p "$prefix/$version.new"
    cp -R "$place/." "$prefix/$version.new/"
    chown -R 0:0 "$prefix/$version.new"
    chmod -R u=rwX,go=rX "$prefix/$version.new"
    if command -v restorecon >/dev/null; then restorecon -R "$prefix" >/dev/null 2>&1 || :; fi
    if ! "$prefix/$version.new/sbin/ingerod" --version >/dev/null 2>&1; then
        rm -rf "$prefix/$version.new"
        fail "its programs do not run here" "is it the archive for $(uname -m), and may programs be run from $prefix?"
    fi
    [ ! -e "$prefix/$version" ] || mv "$prefix/$version" "$prefix/$version.old"
    mv "$prefix/$version.new" "$prefix/$version"
    rm -rf "$prefix/$version.old"
}

# The administrator's stays; one that is as the version before had it becomes as this one has it.
install_config() {
    new=$prefix/$version/share/system/ingerod.conf
    mkdir -p /etc/ingero/ingerod.conf.d
    if [ -e "$config" ] && ! cmp -s "$config" "${before:-/nonexistent}" && ! cmp -s "$config" "$new"; then
        note "$config was changed and is kept; the new default is $new"
        return
    fi
    cp "$new" "$config.ingero-new"
    mv -f "$config.ingero-new" "$config"
}

do_install() {
    check_host
    check_prefix
    check_no_package
    if [ ! -r "$place/VERSION" ] || ! ours "$place"; then fail "$place is not an unpacked archive"; fi
    version=$(cat "$place/VERSION")
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    before='' previous=''
    if [ -L "$prefix/current" ]; then
        previous=$(readlink "$prefix/current")
        before=$scratch/before.conf
        cp "$prefix/current/share/system/ingerod.conf" "$before" 2>/dev/null || before=''
    fi
    install_tree
    : >>"$list"
    install_config
    ln -sfn "$version" "$prefix/current.new"
    mv -fT "$prefix/current.new" "$prefix/current" 2>/dev/null || { ln -sfn "$version" "$prefix/current"; rm -f "$prefix/current.new"; }

    from=$prefix/current/share/system
    for file in "$from"/*.service "$from"/*.socket "$from"/*.target; do
        of_prefix "$file" "$units/${file##*/}"
    done
    put 0644 "$from/90-ingero.preset" /usr/local/lib/systemd/system-preset/90-ingero.preset
    put 0644 "$from/ingero.catalog" /usr/local/lib/systemd/catalog/ingero.catalog
    put 0644 "$from/ingero.sysusers" /usr/local/lib/sysusers.d/ingero.conf
    put 0644 "$from/ingero.tmpfiles" /usr/local/lib/tmpfiles.d/ingero.conf
    put 0644 "$from/io.ingero.Ingero1.conf" /etc/dbus-1/system.d/io.ingero.Ingero1.conf
    put 0644 "$from/io.ingero.Ingero1.service" /usr/local/share/dbus-1/system-services/io.ingero.Ingero1.service
    # The one place where every polkit looks, which some systems keep read-only.
    if mkdir -p /usr/share/polkit-1/actions 2>/dev/null && [ -w /usr/share/polkit-1/actions ]; then
        put 0644 "$from/io.ingero.Ingero1.policy" /usr/share/polkit-1/actions/io.ingero.Ingero1.policy
    else
        note "/usr is read-only, so the polkit actions were not installed: only root may change anything over D-Bus"
    fi
    for program in bin/ingeroctl sbin/ingerod; do link "$prefix/current/$program" "/usr/local/$program"; done
    for page in "$prefix"/current/share/man/man*/*; do
        link "$page" "/usr/local/share/man/${page#"$prefix"/current/share/man/}"
    done

    systemd-sysusers /usr/local/lib/sysusers.d/ingero.conf
    systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/ingero.conf
    reload_system
    # One version to go back to.
    for folder in "$prefix"/*/; do
        folder=${folder%/}
        case "${folder##*/}" in
            "$version" | "$previous") ;;
            *) if ours "$folder"; then rm -rf "$folder"; fi ;;
        esac
    done
    # shellcheck disable=SC2086  # several units
    systemctl try-restart $services
    echo "ingero $version is installed in $prefix/$version"
    systemctl is-enabled --quiet ingerod.service 2>/dev/null || echo "start it: systemctl enable --now ingerod"
}

remove_users() {
    if grep -Eqs '^[[:space:]]*path[[:space:]]*=' "$config" /etc/ingero/ingerod.conf.d/*.conf; then
        note "the user ingero stays, since it owns the store that ingerod.conf had moved"
        set -- ingero-relay
    else
        set -- ingero-relay ingero
    fi
    for user; do
        if getent passwd "$user" >/dev/null; then userdel "$user" || note "the user $user could not be removed"; fi
        if getent group "$user" >/dev/null; then groupdel "$user" || note "the group $user could not be removed"; fi
    done
}

do_uninstall() {
    check_host
    check_prefix
    if [ -r "$list" ]; then
        # shellcheck disable=SC2086
        systemctl disable --now $services $sockets >/dev/null 2>&1 || :
        while IFS= read -r file; do
            rm -f -- "$file"
        done <"$list"
        rm -rf /run/ingero /run/ingerod
    elif [ -z "$purge" ] || [ -e "$units/ingerod.service" ]; then
        fail "nothing is installed below $prefix" "give the --prefix it was installed with"
    fi
    if [ -n "$purge" ]; then
        remove_users
        rm -rf /etc/ingero "$state"
    fi
    # Last, so that what was interrupted can be done again. A folder of somebody else's is left.
    for folder in "$prefix"/*/; do
        folder=${folder%/}
        if ours "$folder"; then rm -rf "$folder"; fi
    done
    rm -f "$prefix/current" "$list"
    if [ -d "$prefix" ]; then rmdir "$prefix" 2>/dev/null || note "$prefix is not empty and stays"; fi
    reload_system
    systemctl reset-failed 'ingero*' >/dev/null 2>&1 || :
    [ -n "$purge" ] || echo "ingero is uninstalled; /etc/ingero and $state stay: --uninstall --purge takes them too"
}

if [ -n "$uninstall" ]; then do_uninstall; else do_install; fi
