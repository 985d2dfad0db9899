//! Where a stream goes: a TCP port, in the clear or in TLS, or a Unix socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address: `127.0.0.1:10809`, `[::1]:10809`, `tls:10.0.0.1:10881` or `unix:/run/tanada.sock`.
///
/// A listener may be bound to each. [`Stream::connect`](super::super::Stream::connect) refuses one of TLS, so that nothing is
/// sent there in the clear by mistake: what speaks TLS connects to its [`Address::socket`].
///
/// # Example
/// ```
/// use env::net::Address;
/// let address: Address = "unix:/run/tanada.sock".parse()?;
/// assert_eq!(address, Address::Unix("/run/tanada.sock".into()));
/// assert_eq!(address.to_string(), "unix:/run/tanada.sock");
/// # Ok::<(), env::net::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port of a host.
    Tcp(SocketAddr),
    /// A TCP port where TLS is spoken from the first byte.
    Tls(SocketAddr),
    /// A Unix socket at a path.
    Unix(PathBuf),
}

impl Address {
    /// Host and port, but of a Unix socket.
    pub fn socket(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(socket) | Address::Tls(socket) => Some(*socket),
            Address::Unix(_) => None,
        }
    }

    /// Is TLS spoken there?
    pub fn is_tls(&self) -> bool {
        matches!(self, Address::Tls(_))
    }
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not an address: {why}; write an IP address and a port such as 127.0.0.1:10809 or [::1]:10809, or unix:/path"
)]
pub struct AddressError {
    text: String,
    why: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Address, AddressError> {
        let refuse = |why| AddressError {
            text: text.to_owned(),
            why,
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(refuse("the path is empty")),
                // The kernel's limit for the path of a Unix socket, with its closing zero byte.
                path if path.len() > 107 => Err(refuse("a socket's path has at most 107 bytes")),
                path if path.contains('\0') => Err(refuse("the path holds a zero byte")),
                path => Ok(Address::Unix(path.into())),
            };
        }
        let (text, kind): (_, fn(SocketAddr) -> Address) = match text.strip_prefix("tls:") {
            Some(rest) => (rest, Address::Tls),
            None => (text, Address::Tcp),
        };
        match text.parse() {
            Ok(socket) => Ok(kind(socket)),
            Err(_) if text.parse::<std::net::IpAddr>().is_ok() => {
                Err(refuse("the port is missing"))
            }
            Err(_) => Err(refuse(
                "it is neither an IP address with a port nor unix:/path",
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(socket) => write!(f, "{socket}"),
            Address::Tls(socket) => write!(f, "tls:{socket}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was_written() {
        for text in [
            "127.0.0.1:10809",
            "[::1]:1",
            "0.0.0.0:0",
            "tls:10.0.0.1:10881",
            "tls:[::1]:1",
            "unix:/run/a b.sock",
            "unix:here",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bad_address_is_refused_with_its_reason() {
        for (text, why) in [
            ("127.0.0.1", "port is missing"),
            ("::1", "port is missing"),
            ("unix:", "path is empty"),
            ("tls:10.0.0.1", "port is missing"),
            ("tls:unix:/run/s", "neither"),
            ("tls:", "neither"),
            ("localhost:10809", "neither"),
            ("127.0.0.1:99999", "neither"),
            ("", "neither"),
        ] {
            let refusal = text.parse::<Address>().unwrap_err().to_string();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(
            long.parse::<Address>()
                .unwrap_err()
                .to_string()
                .contains("107")
        );
    }
}
