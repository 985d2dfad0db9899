//! What shows that the larger tools work: scripts of the shell, each in an empty folder of its own.

use crate::trial::Trial;

pub const CHROMIUM: Trial = r#"
for name in chromium chromium-browser google-chrome; do
    if command -v $name; then break; fi
done
$name --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$PWD/user" --dump-dom about:blank | grep html
"#;

/// One member alone, at any free ports.
pub const ETCD: Trial = r#"
any=http://127.0.0.1:0
etcd --data-dir data --listen-client-urls $any --advertise-client-urls $any --listen-peer-urls $any \
    --initial-advertise-peer-urls $any --initial-cluster default=$any >log 2>&1 &
until grep -q "ready to serve client requests" log; do
    kill -0 $! || { tail -n 3 log; exit 1; }
    sleep 0.1
done
kill $!
"#;

/// Tests mount as root, and where there is FUSE; elsewhere they skip themselves.
pub const NBDFUSE: Trial = r#"
if [ "$(id -u)" != 0 ] || [ ! -w /dev/fuse ]; then nbdfuse --version; exit; fi
nbdkit -U - memory 1M --run '
    : >disk
    nbdfuse disk "$uri" &
    until [ -s disk ]; do kill -0 $! || exit 1; sleep 0.1; done
    umount disk
    wait $!
'
"#;

/// The system tables, as `bench app` has them made: another user is none of this trial's concern.
pub const MARIADB: Trial = r#"
mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$PWD/data" --innodb-log-file-size=8M \
    --auth-root-authentication-method=normal --skip-test-db
"#;

/// Tests run a controller and a node of their own. Hooks of its burst buffers are written in Lua.
pub const SLURM: Trial = r#"
munged --version
slurmctld -V
for name in sbatch scancel scontrol sinfo squeue; do command -v $name; done
slurmd -C | grep NodeName=
ls /usr/lib*/*/slurm*/burst_buffer_lua.so /usr/lib*/slurm*/burst_buffer_lua.so 2>/dev/null | grep .
for lua in lua5.4 lua5.3 lua5.1 lua; do
    if command -v $lua; then break; fi
done
$lua -e 'assert(io.popen("true"))'
"#;

/// A signed URL needs no server. Neither does what follows.
pub const S3CMD: Trial = r#"
: >config
s3cmd -c config --access_key=ID --secret_key=SECRET signurl s3://bucket/key +60 | grep Signature
"#;

/// A repository in the folder.
pub const RESTIC: Trial = r#"
export RESTIC_PASSWORD=secret
echo 1 >a
restic --no-cache -r repo init
restic --no-cache -r repo backup a
restic --no-cache -r repo check --read-data
"#;
