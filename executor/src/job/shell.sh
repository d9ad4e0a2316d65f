# The driver of a named shell. On descriptor 3 it gets, for each command, a directory to enter (or nothing) and the
# command, each ended by a NUL; it answers with `m` and the directory where it had to move to one, with `t` and what times(1)
# says before the command and after it, then with `s` and the status. Errors and traces of its own lines go nowhere; the command sees neither descriptor 3 nor its variables.
while { IFS= builtin read -r -d '' -u 3 __runlet_at && IFS= builtin read -r -d '' -u 3 __runlet_command; } 2>/dev/null; do
    {
        if ! [[ . -ef $PWD ]]; then
            __runlet_lost=$PWD
            until builtin cd -- "${__runlet_lost:-/}"; do __runlet_lost=${__runlet_lost%/*}; done
            builtin printf 'm%s\0' "$PWD" >&3
        fi
        { builtin printf t; builtin times; builtin printf '\0'; } >&3
    } 2>/dev/null
    if [[ -z $__runlet_at ]] || builtin cd -- "$__runlet_at"; then
        builtin eval "builtin unset -v __runlet_at __runlet_command __runlet_lost
$__runlet_command" 3>&-
    else
        builtin false
    fi
    {
        __runlet_status=$?
        { builtin printf t; builtin times; builtin printf '\0s%s\0' "$__runlet_status"; } >&3
        builtin unset -v __runlet_status
    } 2>/dev/null
done
