//! The clients people use, against this server on a real runtime, over Unix sockets and TCP.
//!
//! A tool that is not installed is skipped and says so; with `TANADA_REQUIRE_TOOLS=1` that is a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use base::{Bytes, Nanos};
use device::{Device, File, FileOptions, Memory};
use env::net::{Address, Listener};
use env::{Poster, Rng, Runtime};
use front::nbd::{Config, Export, Limits, Server, ServerSnapshot, Tls, TlsMode};

const SIZE: Bytes = Bytes::mib(64);

/// A server in a thread of its own: `mem` in memory (the default export), `file` in a file, `ro` read-only.
struct Served {
    directory: tempfile::TempDir,
    tcp: Address,
    stop: Poster<()>,
    thread: JoinHandle<ServerSnapshot>,
}

impl Served {
    fn start(tls: Option<Tls>) -> Served {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_owned();
        let (address_sender, address) = mpsc::channel();
        let (stop, mut stopped) = env::mailbox();
        let serving = move || {
            let runtime = Runtime::real(env::RealConfig::default()).expect("a runtime");
            runtime.block_on(async move {
                let server = Server::new(Config {
                    tls,
                    limits: Limits::default(),
                });
                let options = FileOptions {
                    create: Some(SIZE),
                    ..FileOptions::default()
                };
                let file = File::open("file", path.join("disk.img"), options).expect("opened");
                let export = |name: &str, device: Rc<dyn Device>| Export {
                    name: name.into(),
                    description: format!("{name} for tests"),
                    device,
                    read_only: name == "ro",
                };
                for export in [
                    export("mem", Memory::new("mem", SIZE)),
                    export("file", file),
                    export("ro", Memory::new("ro", SIZE)),
                ] {
                    server.add_export(export).expect("exported");
                }
                let unix = Address::Unix(path.join("nbd.sock"));
                server.serve(Listener::bind(&unix).expect("a socket"));
                let tcp = Listener::bind(&"127.0.0.1:0".parse().expect("an address"));
                let tcp = tcp.expect("a free port");
                address_sender
                    .send(tcp.address().clone())
                    .expect("the test waits");
                server.serve(tcp);
                // The poster's end: stop, or the test has failed.
                let _ = stopped.receive().await;
                // Clients of the tools hang up without waiting for us.
                let mut tries = 100;
                while !server.snapshot().connections.is_empty() && tries > 0 {
                    env::sleep(Nanos::millis(10)).await;
                    tries -= 1;
                }
                let snapshot = server.snapshot();
                server.drain().await;
                snapshot
            })
        };
        let thread = std::thread::Builder::new()
            .spawn(serving)
            .expect("a thread");
        let tcp = address.recv().expect("the server starts");
        Served {
            directory,
            tcp,
            stop,
            thread,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn unix(&self, export: &str) -> String {
        format!(
            "nbd+unix:///{export}?socket={}",
            self.path("nbd.sock").display()
        )
    }

    fn tcp(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.tcp)
    }

    /// Stops the server: no request is left, no client was called a violator.
    fn stop(self) -> ServerSnapshot {
        self.stop.post(()).expect("the server runs");
        let snapshot = self.thread.join().expect("the server ends");
        assert_eq!((snapshot.violations, snapshot.stalled), (0, 0));
        for export in &snapshot.exports {
            assert_eq!(export.counts.in_flight, 0, "{export:?}");
        }
        snapshot
    }
}

/// Is the tool here? If not: skip, or fail where tools are required.
fn have(tool: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()));
    if !found {
        let required = std::env::var_os("TANADA_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!required, "{tool} is required and not installed");
        println!("skipped: {tool} not installed");
    }
    found
}

fn output(tool: &str, arguments: &[&str]) -> Output {
    // nbdsh runs the first python3 it finds and needs the system's, which knows libnbd.
    let path = std::env::var("PATH").unwrap_or_default();
    // fio leaves notes where it runs, and Python takes modules from there: a folder that holds nothing.
    let empty = tempfile::tempdir().expect("a directory");
    Command::new(tool)
        .args(arguments)
        .env("PATH", format!("/usr/bin:{path}"))
        .current_dir(empty.path())
        .output()
        .expect("the tool starts")
}

/// Runs the tool; it must succeed. What it printed.
fn run(tool: &str, arguments: &[&str]) -> String {
    let output = output(tool, arguments);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{tool} {arguments:?}\n{out}\n{err}"
    );
    out
}

/// A file of `SIZE` with random data, and holes.
fn random_image(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; SIZE.usize()];
    let mut rng = Rng::from_seed(42);
    for piece in bytes.chunks_mut(1 << 20) {
        if rng.chance(0.7) {
            rng.fill(piece);
        }
    }
    std::fs::write(path, &bytes).expect("written");
    bytes
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn a_client_runs_where_no_file_of_others_lies() {
    // A file types.py in the shared temporary folder would take the place of Python's own module.
    let served = Served::start(None);
    assert_eq!(run("ls", &["-A"]), "");
    served.stop();
}

#[test]
fn nbdinfo_sees_every_export_and_its_abilities() {
    if !have("nbdinfo") {
        return;
    }
    let served = Served::start(None);
    let size = SIZE.0.to_string();
    for uri in [served.unix(""), served.tcp("file")] {
        assert_eq!(run("nbdinfo", &["--size", &uri]).trim(), size);
        for ability in [
            "flush",
            "fua",
            "trim",
            "zero",
            "multi-conn",
            "cache",
            "df",
            "structured-reply",
        ] {
            if ability == "structured-reply" {
                assert!(run("nbdinfo", &[&uri]).contains("structured packets"));
            } else {
                run("nbdinfo", &["--can", ability, &uri]);
            }
        }
        let printed = run("nbdinfo", &[&uri]);
        for part in [
            "protocol: newstyle-fixed without TLS, using structured packets",
            "base:allocation",
            "block_size_minimum: 512",
            "block_size_preferred: 4096",
            "block_size_maximum: 33554432",
            "for tests",
        ] {
            assert!(printed.contains(part), "{part} is missing in\n{printed}");
        }
        let map = run("nbdinfo", &["--map", &uri]);
        assert!(map.contains("hole,zero") && !map.contains("data"), "{map}");
    }
    run("nbdinfo", &["--is", "read-only", &served.unix("ro")]);
    assert!(
        !output("nbdinfo", &["--is", "read-only", &served.unix("mem")])
            .status
            .success()
    );
    let listed = run("nbdinfo", &["--list", &served.tcp("")]);
    for name in ["export=\"mem\"", "export=\"file\"", "export=\"ro\""] {
        assert!(listed.contains(name), "{listed}");
    }
    assert!(!output("nbdinfo", &[&served.unix("none")]).status.success());
    served.stop();
}

#[test]
fn nbdcopy_brings_random_data_there_and_back() {
    if !have("nbdcopy") {
        return;
    }
    let served = Served::start(None);
    let (source, back) = (served.path("source"), served.path("back"));
    let bytes = random_image(&source);
    for uri in [served.unix("mem"), served.tcp("file")] {
        run("nbdcopy", &["--flush", text(&source), &uri]);
        run(
            "nbdcopy",
            &["--connections=4", "--requests=64", &uri, text(&back)],
        );
        assert!(std::fs::read(&back).expect("read") == bytes, "{uri}");
    }
    // Export to export, and through one connection of small requests.
    run("nbdcopy", &[&served.unix("file"), &served.tcp("mem")]);
    run(
        "nbdcopy",
        &[
            "--connections=1",
            "--request-size=4096",
            &served.unix("mem"),
            text(&back),
        ],
    );
    assert!(std::fs::read(&back).expect("read") == bytes);
    let snapshot = served.stop();
    assert_eq!(
        snapshot
            .exports
            .iter()
            .map(|export| export.counts.errors)
            .sum::<u64>(),
        0
    );
}

#[test]
fn nbdsh_tries_every_command_and_every_mistake() {
    if !have("nbdsh") {
        return;
    }
    let served = Served::start(None);
    let script = r#"
import errno, os
h.set_strict_mode(0)
size = h.get_size()
assert size == 64 << 20, size
data = os.urandom(1 << 20)
h.pwrite(data, 4096, nbd.CMD_FLAG_FUA)
h.flush()
assert h.pread(1 << 20, 4096) == data
assert h.pread(32 << 20, 0)[4096:4096 + (1 << 20)] == data

seen = []
def chunk(piece, offset, status, error):
    seen.append((offset, len(piece), status))
got = h.pread_structured(1 << 20, 4096, chunk, nbd.CMD_FLAG_DF)
assert got == data and len(seen) == 1, seen

extents = []
def extent(context, offset, entries, error):
    assert context == "base:allocation"
    extents.append((offset, list(entries)))
h.block_status(size, 0, extent)
covered = sum(extents[0][1][::2])
assert covered == size, (covered, extents)
extents.clear()
h.block_status(size, 0, extent, nbd.CMD_FLAG_REQ_ONE)
assert len(extents[0][1]) == 2, extents

h.zero(65536, 4096)
assert h.pread(65536, 4096) == bytes(65536)
h.zero(65536, 8192, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
h.trim(1 << 20, 4096, nbd.CMD_FLAG_FUA)
h.cache(1 << 20, 0)
h.zero(1 << 20, 32 << 20, nbd.CMD_FLAG_FAST_ZERO)

def refused(code, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errnum == code, (error.errnum, code, error.string)
    else:
        raise AssertionError("not refused")

refused(errno.EINVAL, lambda: h.pread(512, 100))
refused(errno.EINVAL, lambda: h.pread(100, 0))
refused(errno.EINVAL, lambda: h.pread(512, size))
refused(errno.ENOSPC, lambda: h.pwrite(bytes(512), size))
refused(errno.ENOSPC, lambda: h.zero(1024, size - 512))
refused(errno.EINVAL, lambda: h.trim(512, size))
refused(errno.EINVAL, lambda: h.pwrite(bytes(100), 0))
refused(errno.EINVAL, lambda: h.pread(512, 0, nbd.CMD_FLAG_REQ_ONE))
refused(errno.EINVAL, lambda: h.pread(33 << 20, 0))
refused(errno.EINVAL, lambda: h.pwrite(bytes(33 << 20), 0))
h.pwrite(b"x" * 512, 0)
refused(errno.ENOTSUP, lambda: h.zero(512, 0, nbd.CMD_FLAG_FAST_ZERO))
assert h.pread(512, 0) == b"x" * 512

# A second connection sees it, and a flush there covers it.
other = nbd.NBD()
other.connect_uri(uri)
assert other.pread(512, 0) == b"x" * 512
other.flush()
other.shutdown()

# Old-style negotiation and simple replies.
for old in (True, False):
    plain = nbd.NBD()
    plain.set_request_structured_replies(False)
    if old:
        plain.set_handshake_flags(0)
    else:
        plain.set_handshake_flags(nbd.HANDSHAKE_FLAG_FIXED_NEWSTYLE)
    plain.connect_uri(uri)
    assert plain.get_size() == size
    assert plain.pread(512, 0) == b"x" * 512
    plain.shutdown()

# Negotiation by hand.
slow = nbd.NBD()
slow.set_opt_mode(True)
slow.connect_uri(uri)
names = []
slow.opt_list(lambda name, description: names.append(name))
assert names == ["mem", "file", "ro"], names
contexts = []
slow.add_meta_context("base:")
slow.opt_list_meta_context(lambda name: contexts.append(name))
assert contexts == ["base:allocation"], contexts
slow.set_export_name("none")
refused(errno.ENOENT, slow.opt_info)
slow.set_export_name("ro")
slow.opt_info()
assert slow.is_read_only()
slow.opt_go()
refused(errno.EPERM, lambda: (slow.set_strict_mode(0), slow.pwrite(bytes(512), 0)))
slow.shutdown()

# Many at once, in any order of completion.
cookies = []
buffers = []
for n in range(300):
    buffer = nbd.Buffer(4096)
    buffers.append(buffer)
    cookies.append(h.aio_pread(buffer, n * 4096))
while h.aio_in_flight() > 0:
    h.poll(-1)
assert all(h.aio_command_completed(cookie) for cookie in cookies)
h.shutdown()
"#;
    for uri in [served.unix("mem"), served.tcp("file")] {
        let script = format!("uri = {uri:?}\n{script}");
        run("nbdsh", &["--base-allocation", "-u", &uri, "-c", &script]);
    }
    served.stop();
}

#[test]
fn qemu_img_converts_compares_checks_and_describes() {
    if !have("qemu-img") {
        return;
    }
    let served = Served::start(None);
    let source = served.path("source");
    random_image(&source);
    for uri in [served.unix("mem"), served.tcp("file")] {
        let convert = [
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "raw",
            text(&source),
            &uri,
        ];
        run("qemu-img", &convert);
        run(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "raw", text(&source), &uri],
        );
        let printed = run("qemu-img", &["info", "--output=json", "-f", "raw", &uri]);
        assert!(
            printed.contains(&format!("\"virtual-size\": {}", SIZE.0)),
            "{printed}"
        );
        let map = run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
        assert!(
            map.contains("\"zero\": true") && map.contains("\"data\": true"),
            "{map}"
        );
    }
    // A format with structure of its own, written through the export and checked there.
    let uri = served.tcp("mem");
    run("qemu-img", &["create", "-f", "qcow2", &uri, "48M"]);
    let small = served.path("small");
    let bytes = std::fs::read(&source).expect("read");
    std::fs::write(&small, &bytes[..48 << 20]).expect("written");
    run(
        "qemu-img",
        &[
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "qcow2",
            "-W",
            text(&small),
            &uri,
        ],
    );
    run("qemu-img", &["check", "-f", "qcow2", &uri]);
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "qcow2", text(&small), &uri],
    );
    served.stop();
}

#[test]
fn qemu_io_reads_back_the_patterns_it_wrote() {
    if !have("qemu-io") {
        return;
    }
    let served = Served::start(None);
    for uri in [served.unix("mem"), served.tcp("file")] {
        let commands = [
            "write -P 0x11 0 1M",
            "aio_write -P 0x22 1M 4k",
            "aio_write -P 0x33 2M 8M",
            "aio_flush",
            "write -f -P 0x44 512 512",
            "write -z 3M 1M",
            "write -z -u 4M 1M",
            "discard 5M 64k",
            "flush",
            "read -P 0x11 0 512",
            "read -P 0x44 512 512",
            "read -P 0x11 1k 1023k",
            "read -P 0x22 1M 4k",
            "read -P 0x33 2M 1M",
            "read -P 0 3M 2M",
            "read -P 0x33 6M 4M",
        ];
        let mut arguments = vec!["-f", "raw"];
        for command in commands {
            arguments.extend(["-c", command]);
        }
        arguments.push(&uri);
        let printed = run("qemu-io", &arguments);
        assert!(
            !printed.contains("verification failed") && !printed.contains("rror"),
            "{printed}"
        );
    }
    served.stop();
}

#[test]
fn fio_verifies_what_it_wrote_at_random() {
    if !have("fio") {
        return;
    }
    if !output("fio", &["--enghelp"])
        .stdout
        .windows(3)
        .any(|word| word == b"nbd")
    {
        println!("skipped: fio's nbd engine not installed");
        return;
    }
    let served = Served::start(None);
    for uri in [served.unix("mem"), served.unix("file")] {
        for (sizes, depth) in [("4k-4k", 32), ("512-1M", 8)] {
            let (uri, sizes) = (format!("--uri={uri}"), format!("--bsrange={sizes}"));
            let depth = format!("--iodepth={depth}");
            let printed = run(
                "fio",
                &[
                    "--name=verify",
                    "--ioengine=nbd",
                    &uri,
                    "--rw=randwrite",
                    &sizes,
                    "--size=24M",
                    &depth,
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--verify_state_save=0",
                    "--fsync=64",
                    "--randseed=7",
                    "--allrandrepeat=1",
                ],
            );
            assert!(printed.contains("err= 0"), "{printed}");
        }
    }
    let snapshot = served.stop();
    let counts = snapshot.exports[0].counts;
    assert!(
        counts.writes > 1000 && counts.reads > 1000 && counts.flushes > 10,
        "{counts:?}"
    );
    assert_eq!(counts.errors, 0);
}

/// PEM files as libnbd looks for them, made for one run: authority, server, client.
struct Keys {
    directory: tempfile::TempDir,
    server: Tls,
}

fn keys(mode: TlsMode, clients_too: bool) -> Keys {
    let mut params = rcgen::CertificateParams::new(vec![]).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "authority of one test");
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let authority_pem = params.self_signed(&authority_key).expect("signed").pem();
    let issuer = rcgen::Issuer::new(params, authority_key);
    let issue = |name: &str| {
        let mut params = rcgen::CertificateParams::new(vec![name.into()]).expect("parameters");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("signed").pem();
        (certificate, key.serialize_pem())
    };
    let (server, server_key) = issue("localhost");
    let (client, client_key) = issue("client");
    let directory = tempfile::tempdir().expect("a directory");
    for (name, pem) in [
        ("ca-cert.pem", &authority_pem),
        ("client-cert.pem", &client),
        ("client-key.pem", &client_key),
    ] {
        std::fs::write(directory.path().join(name), pem).expect("written");
    }
    let authority = clients_too.then_some(authority_pem.as_bytes());
    let server = Tls::from_pem(mode, server.as_bytes(), server_key.as_bytes(), authority);
    Keys {
        directory,
        server: server.expect("usable"),
    }
}

#[test]
fn libnbd_speaks_tls_with_this_server_and_is_kept_out_without() {
    if !have("nbdinfo") || !have("nbdcopy") {
        return;
    }
    for clients_too in [false, true] {
        let keys = keys(TlsMode::Required, clients_too);
        let served = Served::start(Some(keys.server.clone()));
        let Address::Tcp(tcp) = served.tcp else {
            panic!("a TCP address")
        };
        let certificates = keys.directory.path().display();
        let uri = |export: &str| {
            format!(
                "nbds://localhost:{}/{export}?tls-certificates={certificates}",
                tcp.port()
            )
        };
        let printed = run("nbdinfo", &[&uri("mem")]);
        assert!(printed.contains("newstyle-fixed with TLS"), "{printed}");
        assert!(!output("nbdinfo", &[&served.tcp("mem")]).status.success());
        let (source, back) = (served.path("source"), served.path("back"));
        let bytes = random_image(&source);
        run("nbdcopy", &[text(&source), &uri("mem")]);
        run("nbdcopy", &["--connections=2", &uri("mem"), text(&back)]);
        assert!(std::fs::read(&back).expect("read") == bytes);
        if clients_too {
            std::fs::remove_file(keys.directory.path().join("client-cert.pem")).expect("removed");
            std::fs::remove_file(keys.directory.path().join("client-key.pem")).expect("removed");
            assert!(!output("nbdinfo", &[&uri("mem")]).status.success());
        }
        served.stop();
    }
}
