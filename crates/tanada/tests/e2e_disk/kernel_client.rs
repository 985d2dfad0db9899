//! The kernel's NBD client in a guest: restarts of the daemon fail no request, and after a crash no old data are read.
//!
//! ```text
//! guest: tanada serve -> tanada client connect -> /dev/nbdN -> writes that are verified, while the daemon restarts
//!                                                            -> kill -9: goes on if the export keeps it, else errors
//! ```

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::guest::lab;

/// How often the daemon is restarted while it is written.
const RESTARTS: u32 = 5;

/// `served`: the lines of what is served as d0, with DIR for the folder of sockets.
fn config(dir: &Path, served: &str) -> String {
    let dir = dir.display().to_string();
    format!(
        "data_dir = \"{dir}/data\"\n{}\n[admin]\nlisten = \"unix:{dir}/admin.sock\"\n[web]\nlisten = []\n",
        served.replace("DIR", &dir)
    )
}

/// A device that is exported as d0.
fn exported(device: &str) -> String {
    format!(
        "[[device]]\nname = \"d0\"\n{device}\n[[export]]\ndevice = \"d0\"\nnbd = \"unix:DIR/d0.sock\""
    )
}

/// A store for the virtual disk d0.
const STORE: &str = "[[device]]\nname = \"disk\"\npath = \"/run/t.img\"\nsize = \"128MiB\"\n[[store]]\nname = \"s\"\n\
                     device = \"disk\"\nlisten = \"unix:DIR/s.sock\"\ncreate = true\n[cluster]\nnode = \"n1\"\n\
                     nbd = \"unix:DIR/nbd.sock\"";

/// What the guest does with one configuration. The restarts fall into a `dd` that reads and writes without the page cache.
fn command(program: &str, dir: &Path, name: &str) -> String {
    let dir = dir.display();
    format!(
        r#"
serve() {{ cat /run/serve.log >>/run/before.log 2>/dev/null; {program} serve {dir}/{name}.toml >/run/serve.log 2>&1 & daemon=$!
    i=0; until grep -q 'is up' /run/serve.log; do i=$((i + 1)); [ $i -lt 300 ] || {{ cat /run/serve.log; exit 1; }}; sleep 0.1; done; }}
modprobe nbd
mkdir -p {dir}
serve
[ {name} != virtual ] || {program} volume create d0 --size 64MiB --copies 1 --admin unix:{dir}/admin.sock || exit 1
{program} client connect d0 /dev/nbd0 --admin unix:{dir}/admin.sock >/run/client.log 2>&1 &
client=$!
i=0; until [ "$(cat /sys/block/nbd0/size)" -gt 0 ]; do i=$((i + 1)); [ $i -lt 100 ] || {{ cat /run/client.log; exit 1; }}; sleep 0.1; done
( n=0; while [ ! -e /run/stop ]; do
    dd if=/dev/urandom of=/run/block bs=64k count=4 status=none
    dd if=/run/block of=/dev/nbd0 bs=64k seek=$((n % 64 * 4)) oflag=direct status=none || {{ echo "a write failed"; exit 1; }}
    dd if=/dev/nbd0 of=/run/again bs=64k skip=$((n % 64 * 4)) count=4 iflag=direct status=none || {{ echo "a read failed"; exit 1; }}
    cmp /run/block /run/again || {{ echo "old data"; exit 1; }}
    n=$((n + 1))
  done; echo rounds: $n ) >/run/writer.log 2>&1 &
writer=$!
for r in $(seq {RESTARTS}); do
    sleep 0.5
    kill $daemon; wait $daemon
    serve
    # Two restarts without a connection between them would be one to the client.
    i=0; until [ "$(grep -c 'connected anew' /run/client.log)" -ge $r ] || [ $i -ge 200 ]; do i=$((i + 1)); sleep 0.1; done
done
sleep 0.5
touch /run/stop
wait $writer || {{ cat /run/writer.log /run/client.log /run/before.log; exit 1; }}
cat /run/writer.log
echo asked again after $(cat /sys/block/nbd0/queue/io_timeout) ms
echo again: $(grep -c 'connected anew' /run/client.log)
# A crash.
kill -9 $daemon; wait $daemon
serve
sleep 2
# A device that was ended has no bytes.
dd if=/dev/nbd0 of=/run/after bs=64k count=4 iflag=direct status=none 2>/run/dd.log
if [ "$(stat -c %s /run/after)" = 262144 ]; then echo after a crash: reads
else echo after a crash: errors; fi
tail -n 1 /run/client.log
kill $client 2>/run/kill.log; wait $client
kill $daemon; wait $daemon
"#
    )
}

#[test]
fn restarts_fail_no_request_of_the_kernels_client_and_a_crash_shows_no_old_data() {
    let Some(vm) = lab(&[]) else { return };
    let program = env!("CARGO_BIN_EXE_tanada");
    let inside = Path::new("/run/t");
    let outside = tempfile::tempdir().expect("a folder");
    for (name, served, after) in [
        (
            "kept",
            exported("path = \"/run/t.img\"\nsize = \"64MiB\""),
            "after a crash: reads",
        ),
        ("virtual", STORE.to_owned(), "after a crash: reads"),
        // A modelled disk has a cache of its own, which a crash empties.
        (
            "lost",
            exported("model = \"ssd-sata-mlc\"\nsize = \"64MiB\"\nfile = \"/run/t.img\""),
            "after a crash: errors",
        ),
    ] {
        let script = format!(
            "set -u; mkdir -p {0}; cp {1}/{name}.toml {0}/; {2}",
            inside.display(),
            outside.path().display(),
            command(program, inside, name)
        );
        fs::write(
            outside.path().join(format!("{name}.toml")),
            config(inside, &served),
        )
        .expect("it is ours");
        let guest = Command::new(&vm)
            .args(["-t", "240", &script])
            .stdin(Stdio::null())
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&guest.stdout).into_owned();
        let errors = String::from_utf8_lossy(&guest.stderr);
        assert!(guest.status.success(), "{name}: {said}\n{errors}");
        assert!(said.contains(&format!("again: {RESTARTS}")), "{said}");
        // Else what a restart caught waits for the kernel's 30 s.
        assert!(
            said.contains("asked again after 2000 ms"),
            "{said}\n{errors}"
        );
        assert!(said.contains(after), "{name}: {said}\n{errors}");
    }
}
