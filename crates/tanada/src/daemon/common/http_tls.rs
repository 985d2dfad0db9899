//! TLS of the admin API and of gateways: what this daemon shows, who is at the other end, and when that ends.
//!
//! ```text
//! DATA_DIR/tls -> rustls settings          looked at every 250 ms, as the data threads do (`thread::secured`)
//! stream -> TLS at all? -> handshake -> the client's certificate, if it showed one: of the cluster, in its time, not revoked
//!              \-> a request in the clear: told so                    \-> until revoked or over: hang up
//! ```
//!
//! Always true:
//! 1. TLS 1.3 and nothing else; a client's certificate opens nothing by itself (`door` asks whose it is).
//! 2. Files that cannot be used change nothing, are warned of, and are tried again until they can be.
//! 3. What was revoked once is revoked until the daemon ends.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use env::net::Address;
use report::terminal::said;
use tls::{Certificate, Serial, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::api::refusal::Refusal;
use crate::daemon::common::certificates::{Folder, Stamp, Trouble, check_own, now};
use crate::daemon::common::revocation::Revocation;

/// How long a handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at the files: a revocation is to be known within a second.
const LOOK: Duration = Duration::from_millis(250);
/// The clock may be set: so often it is asked whether a certificate is over.
const CLOCK: Duration = Duration::from_secs(60);
/// A request in the clear is heard so long before it is answered.
const HEAR: Duration = Duration::from_millis(200);

/// See the module's head.
pub struct HttpTls {
    folder: Folder,
    current: Mutex<Current>,
    revoked: watch::Sender<BTreeSet<Serial>>,
}

struct Current {
    /// That of the files which were taken over whole.
    stamp: Stamp,
    server: Arc<ServerConfig>,
}

/// A client after its handshake, with the certificate that it showed.
pub type Greeted = (TlsStream<TcpStream>, Option<Certificate>);

fn server(folder: &Folder) -> anyhow::Result<(Settings, Arc<ServerConfig>)> {
    let settings = Settings::new(&folder.material()?).context("tls")?;
    let server = settings.server();
    let server = server.ok_or_else(|| anyhow!("there is no certificate"))?;
    Ok((settings, server))
}

impl HttpTls {
    /// From the files of the daemon. `node` is what this node is called in its cluster.
    ///
    /// # Errors
    /// There is no certificate, it is another node's, or the files cannot be used.
    pub fn open(data_dir: &Path, node: Option<&str>, at: &Address) -> anyhow::Result<Arc<HttpTls>> {
        let folder = Folder::of_daemon(data_dir);
        if !folder.has_certificate() {
            return Err(anyhow!(
                "cannot listen on {at}: TLS needs a certificate of this node; make one with `tanada cluster \
                 ca init` and `tanada node create`"
            ));
        }
        let stamp = folder.stamp();
        let (settings, server) = server(&folder)?;
        if let Some(own) = settings.own() {
            check_own(&folder, &own.peer, node)?;
        }
        let (revoked, _) = watch::channel(folder.read_revoked()?);
        Ok(Arc::new(HttpTls {
            folder,
            current: Mutex::new(Current { stamp, server }),
            revoked,
        }))
    }

    /// Takes over what changes in the files, and what other threads hear is revoked, for ever.
    pub async fn keep_looking(self: Arc<Self>, revocation: Revocation) {
        let mut trouble = Trouble::default();
        let mut heard = revocation.listen();
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                more = heard.receive() => {
                    self.revoke(more.unwrap_or_default());
                    continue;
                }
                _ = look.tick() => {}
            }
            let why = self.look(&revocation).err();
            if let Some(why) = trouble.after(why.map(|why| said::words(&why))) {
                tracing::error!(
                    "files in DATA_DIR/tls cannot be used for the admin API, and what was read of them before stays in use: \
                     {why}"
                );
            }
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, revocation: &Revocation) -> anyhow::Result<()> {
        let stamp = self.folder.stamp();
        if self.current().stamp == stamp {
            return Ok(());
        }
        // These first: a certificate that cannot be read is no reason to let a revoked one in.
        let wrong = self
            .folder
            .read_revoked_lines()
            .and_then(|(revoked, wrong)| {
                revocation.spread(&revoked);
                self.revoke(revoked);
                wrong.map_or(Ok(()), |why| Err(anyhow!(why)))
            });
        // Nor is a line that cannot be read one to keep a renewed certificate out.
        let (_, server) = server(&self.folder)?;
        self.current().server = server;
        wrong?;
        // What fails is looked at again, whatever the stamp: the system may have had no file left to open.
        self.current().stamp = stamp;
        Ok(())
    }

    /// These are revoked, too: connections under them end.
    fn revoke(&self, more: BTreeSet<Serial>) {
        self.revoked.send_if_modified(|revoked| {
            let before = revoked.len();
            revoked.extend(more);
            revoked.len() > before
        });
    }

    /// The handshake with a client that has just come.
    ///
    /// # Errors
    /// In words: it speaks no TLS 1.3, or its certificate is none of the cluster, not in its time, or revoked.
    pub async fn greet(&self, mut stream: TcpStream) -> Result<Greeted, String> {
        let mut first = [0];
        let peeked = stream.peek(&mut first).await;
        if peeked.is_ok_and(|count| count == 1) && first[0].is_ascii_uppercase() {
            turn_away(&mut stream).await;
            return Err("it asks in the clear".to_owned());
        }
        let server = Arc::clone(&self.current().server);
        let greeted = TlsAcceptor::from(server).accept(stream).await;
        let stream = greeted.map_err(|error| words(&error))?;
        let shown = stream.get_ref().1.peer_certificates();
        let shown = shown.and_then(|chain| chain.first());
        let shown = match shown.map(Certificate::read) {
            None => None,
            Some(None) => return Err("what it shows is no certificate".to_owned()),
            Some(shown) => shown,
        };
        match shown {
            Some(shown) if self.revoked.borrow().contains(&shown.serial) => Err(gone(&shown)),
            shown => Ok((stream, shown)),
        }
    }

    /// Waits until the certificate that a client showed is revoked or over; why its connection ends. Never for one that
    /// showed none.
    pub async fn until_over(&self, shown: Option<&Certificate>) -> String {
        let Some(shown) = shown else {
            return std::future::pending().await;
        };
        let mut revoked = self.revoked.subscribe();
        loop {
            if revoked.borrow_and_update().contains(&shown.serial) {
                return gone(shown);
            }
            let left = shown.not_after.saturating_sub(now());
            if left == 0 {
                let (serial, peer) = (&shown.serial, &shown.peer);
                return format!("the certificate {serial} of {peer} is over");
            }
            tokio::select! {
                _ = revoked.changed() => {}
                () = tokio::time::sleep(Duration::from_secs(left).min(CLOCK)) => {}
            }
        }
    }
}

fn gone(shown: &Certificate) -> String {
    let (serial, peer) = (&shown.serial, &shown.peer);
    format!("the certificate {serial} of {peer} is revoked")
}

/// Why a handshake failed, as far as rustls says it.
pub fn words(error: &std::io::Error) -> String {
    let inner = error.get_ref();
    let of_tls = inner.and_then(|it| it.downcast_ref::<tokio_rustls::rustls::Error>());
    of_tls.map_or_else(|| error.to_string(), tls::words)
}

/// Tells a client that asks in the clear what to write instead, in the clear: nothing of it is secret.
async fn turn_away(stream: &mut TcpStream) {
    // What is not read makes the kernel cut the answer off.
    let mut heard = [0; 4096];
    let _ = tokio::time::timeout(HEAR, stream.read(&mut heard)).await;
    let refusal = Refusal {
        error: "this address speaks TLS, and the request came in the clear".to_owned(),
        what_to_do: "write https://, for `tanada` an address such as tls:10.0.0.1:10880".to_owned(),
    };
    let body = serde_json::to_string(&refusal).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // It may be gone already.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Where a client in TLS came from, and what it showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPeer {
    pub from: IpAddr,
    pub shown: Option<Arc<Certificate>>,
}

#[cfg(test)]
mod tests {
    use tls::Peer;
    use tls::authority::{Authority, Issued, KeyKind, Subject};

    use super::*;

    fn issued(ca: &Authority, peer: Peer, random: u8) -> Issued {
        let subject = Subject {
            peer,
            account_id: Some(7),
            hosts: vec!["127.0.0.1".to_owned()],
        };
        ca.issue(&subject, (now(), 1), [random; 16])
            .expect("issued")
    }

    fn with_runtime(scene: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(scene);
    }

    #[test]
    fn a_certificate_ends_when_it_is_revoked_or_over_and_stays_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::of_daemon(dir.path());
        let at: Address = "tls:127.0.0.1:1".parse().unwrap();
        let why = HttpTls::open(dir.path(), None, &at).err().unwrap();
        assert!(why.to_string().contains("tanada node create"), "{why}");
        let (ca, _) = Authority::make("ca", KeyKind::P256, (now(), 30), [1; 16]).unwrap();
        let own = issued(&ca, Peer::Node("n1".into()), 2);
        folder
            .write(&own.certificate, &own.key, &ca.certificate)
            .unwrap();
        let why = HttpTls::open(dir.path(), Some("n9"), &at).err().unwrap();
        assert!(why.to_string().contains("of node n1"), "{why}");
        let tls = HttpTls::open(dir.path(), Some("n1"), &at).unwrap();
        let astro = issued(&ca, Peer::Account("astro".into()), 3).says;
        with_runtime(async {
            let over = Certificate {
                not_after: now(),
                ..astro.clone()
            };
            assert!(tls.until_over(Some(&over)).await.ends_with("is over"));
            let waiting = tls.until_over(Some(&astro));
            let mut waiting = std::pin::pin!(waiting);
            let brief = Duration::from_millis(20);
            let early = tokio::time::timeout(brief, waiting.as_mut()).await;
            assert!(early.is_err(), "it is good");
            folder
                .add_revoked(&[(astro.serial.clone(), String::new())])
                .unwrap();
            tls.look(&Revocation::default()).unwrap();
            assert!(waiting.await.ends_with("is revoked"));
            // Files that cannot be used, or list it no more, let it in no more.
            std::fs::write(folder.certificate(), "junk").unwrap();
            std::fs::write(folder.revoked(), "").unwrap();
            assert!(tls.look(&Revocation::default()).is_err());
            assert!(tls.until_over(Some(&astro)).await.ends_with("is revoked"));
        });
    }

    #[test]
    fn what_can_be_read_is_taken_over_and_the_rest_as_soon_as_it_can_be() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::of_daemon(dir.path());
        let at: Address = "tls:127.0.0.1:1".parse().unwrap();
        let (ca, _) = Authority::make("ca", KeyKind::P256, (now(), 30), [1; 16]).unwrap();
        let write = |random| {
            let own = issued(&ca, Peer::Node("n1".into()), random);
            let done = folder.write(&own.certificate, &own.key, &ca.certificate);
            done.unwrap();
        };
        write(2);
        let tls = HttpTls::open(dir.path(), Some("n1"), &at).unwrap();
        let look = || tls.look(&Revocation::default());
        let first = Arc::clone(&tls.current().server);
        let is_first = || Arc::ptr_eq(&first, &tls.current().server);
        // A key that others can read, until it is put right.
        write(3);
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.key(), mode).unwrap();
        };
        mode(0o644);
        for _ in 0..3 {
            assert!(look().is_err() && is_first());
        }
        mode(0o600);
        look().unwrap();
        assert!(!is_first());
        // A bad line among the revoked keeps out no other, nor a certificate.
        let second = Arc::clone(&tls.current().server);
        write(4);
        std::fs::write(folder.revoked(), "no number\na1\n").unwrap();
        let why = look().unwrap_err().to_string();
        assert!(why.contains("line 1"), "{why}");
        assert!(!Arc::ptr_eq(&second, &tls.current().server));
        assert!(tls.revoked.borrow().contains(&Serial::parse("a1").unwrap()));
        std::fs::write(folder.revoked(), "b2\n").unwrap();
        look().unwrap();
        assert_eq!(tls.revoked.borrow().len(), 2);
    }
}
