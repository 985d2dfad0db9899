//! The ways between nodes, in the hands of a test.
//!
//! ```text
//! node --> ways/NODE.sock --> the store of NODE       (who comes is known by its process)
//! node --> a port of its own --> etcd
//! ```
//!
//! What is on a way that is cut waits until it is repaired, as on a network that loses packets and sends them
//! again; neither end learns of it. Each
//! direction is a way of its own, so answers may be cut off while requests arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What nodes call the meta store here.
pub const ETCD: &str = "etcd";

#[derive(Default)]
struct State {
    /// From, to.
    cut: BTreeSet<(String, String)>,
    /// Which node a process is.
    names: BTreeMap<i32, String>,
}

/// All ways; clones are the same ones.
#[derive(Clone, Default)]
pub struct Ways(Arc<(Mutex<State>, Condvar)>);

/// One end of a connection: which node, as far as it is known.
#[derive(Clone)]
enum End {
    Named(String),
    Process(i32),
}

/// A stream that two threads use at the same time, one for each direction.
trait Both: Read + Write + Send + Sized + 'static {
    fn again(&self) -> Self;
    fn end(&self);
}

impl Both for UnixStream {
    fn again(&self) -> Self {
        self.try_clone().expect("a descriptor")
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Both for TcpStream {
    fn again(&self) -> Self {
        self.try_clone().expect("a descriptor")
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Ways {
    /// Process `pid` is the node `name`. What a process sends waits until this is said.
    pub fn is(&self, pid: u32, name: &str) {
        let pid = i32::try_from(pid).expect("a process's number");
        self.state().names.insert(pid, name.to_owned());
        self.0.1.notify_all();
    }

    /// Nothing goes from `from` to `to` any more.
    pub fn cut(&self, from: &str, to: &str) {
        self.state().cut.insert((from.to_owned(), to.to_owned()));
    }

    /// All ways are open, and what waited goes on.
    pub fn repair(&self) {
        self.state().cut.clear();
        self.0.1.notify_all();
    }

    /// A socket at `at` that leads to the store of `node` at `store`.
    pub fn to_store(&self, node: &str, at: &Path, store: PathBuf) {
        let listener = UnixListener::bind(at).expect("the directory is ours");
        let (ways, node) = (self.clone(), node.to_owned());
        thread(move || {
            for from in listener.incoming().flatten() {
                let who = rustix::net::sockopt::socket_peercred(&from).expect("a Unix socket");
                let who = End::Process(who.pid.as_raw_nonzero().get());
                // The store may be down just now.
                if let Ok(to) = UnixStream::connect(&store) {
                    ways.join(who, from, End::Named(node.clone()), to);
                }
            }
        });
    }

    /// A port at which `node` finds etcd, which listens at `etcd`.
    pub fn to_etcd(&self, node: &str, etcd: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (ways, node) = (self.clone(), node.to_owned());
        thread(move || {
            for from in listener.incoming().flatten() {
                if let Ok(to) = TcpStream::connect(("127.0.0.1", etcd)) {
                    let ends = (End::Named(node.clone()), End::Named(ETCD.to_owned()));
                    ways.join(ends.0, from, ends.1, to);
                }
            }
        });
        port
    }

    fn join<S: Both>(&self, one: End, at_one: S, other: End, at_other: S) {
        let (there, back) = ((at_one.again(), at_other.again()), (at_other, at_one));
        for ((from, to), (sent_by, sent_to)) in
            [(there, (one.clone(), other.clone())), (back, (other, one))]
        {
            let ways = self.clone();
            thread(move || ways.carry(&sent_by, from, &sent_to, to));
        }
    }

    /// Until either end has gone.
    fn carry<S: Both>(&self, sent_by: &End, mut from: S, sent_to: &End, mut to: S) {
        let mut piece = vec![0; 256 << 10];
        while let Ok(len @ 1..) = from.read(&mut piece) {
            self.wait(sent_by, sent_to);
            if to.write_all(&piece[..len]).is_err() {
                break;
            }
        }
        // That one end has gone waits as well.
        self.wait(sent_by, sent_to);
        from.end();
        to.end();
    }

    /// Until the way is open.
    fn wait(&self, from: &End, to: &End) {
        let (_, changed) = &*self.0;
        let is_cut = |state: &mut State| match (state.name(from), state.name(to)) {
            (Some(from), Some(to)) => state.cut.contains(&(from, to)),
            _ => true,
        };
        drop(
            changed
                .wait_while(self.state(), is_cut)
                .expect("no panic holds it"),
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().expect("no panic holds it")
    }
}

impl State {
    fn name(&self, end: &End) -> Option<String> {
        match end {
            End::Named(name) => Some(name.clone()),
            End::Process(pid) => self.names.get(pid).cloned(),
        }
    }
}

/// It ends with its connection, or with the test's process.
fn thread(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name("way".to_owned());
    thread.spawn(work).expect("a thread");
}

#[test]
fn what_is_on_a_way_that_is_cut_waits_and_the_other_direction_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, at) = (dir.path().join("store"), dir.path().join("way"));
    let behind = UnixListener::bind(&store).expect("a socket");
    let ways = Ways::default();
    ways.to_store("n2", &at, store);
    let mut one = UnixStream::connect(&at).expect("the way");
    let (mut two, _) = behind.accept().expect("the way's other end");
    two.set_nonblocking(true).expect("a socket");
    let mut byte = [0];
    let mut got = |two: &mut UnixStream| two.read(&mut byte).map(|len| (len, byte[0])).ok();
    // Who it is is not known yet.
    one.write_all(b"a").expect("sent");
    assert_eq!(got(&mut two), None);
    ways.cut("n1", "n2");
    ways.is(std::process::id(), "n1");
    two.write_all(b"b").expect("sent");
    let mut answer = [0];
    one.read_exact(&mut answer).expect("this direction is open");
    assert_eq!((answer, got(&mut two)), (*b"b", None));
    ways.repair();
    two.set_nonblocking(false).expect("a socket");
    assert_eq!(got(&mut two), Some((1, b'a')));
    drop(two);
    assert_eq!(one.read(&mut answer).expect("an end"), 0);
}
