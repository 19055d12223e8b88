# Read by the scripts that compare: installs what they compare with, and builds our server unless `--binary` names one.
# They are at the root of the tree, and their arguments are changed. Leaves the folder of the results in $folder.
folder=$PWD/target/bench
package='remote-sandbox-mcp==0.7.6'
drawing='matplotlib==3.10.7'

binary=
for argument; do
    case $argument in
    --binary | --binary=*) binary=given ;;
    esac
done

mkdir -p "$folder"
if ! [ -f "$folder/venv/installed" ] || [ "$(cat "$folder/venv/installed")" != "$package $drawing" ]; then
    rm -rf "$folder/venv"
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$package" "$drawing"
    echo "$package $drawing" >"$folder/venv/installed"
fi

if [ -z "$binary" ]; then
    cargo build --release --locked
    set -- --binary "${CARGO_TARGET_DIR:-$PWD/target}/release/remote-sandbox-mcp" "$@"
fi

# sshd started as root refuses to run without its privilege separation folder.
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
