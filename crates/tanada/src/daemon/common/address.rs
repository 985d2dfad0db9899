//! Addresses and errors of sockets, as people and clients read them.

use std::io;
use std::path::{Path, PathBuf};

use env::net::Address;

/// The system's words without the number.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

/// The address of an export as NBD clients write it.
pub fn nbd_uri(address: &Address, export: &str, tls: bool) -> String {
    let scheme = if tls { "nbds" } else { "nbd" };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let escape = |text: &str| -> String {
        text.bytes()
            .map(|byte| match plain(byte) {
                true => (byte as char).to_string(),
                false => format!("%{byte:02X}"),
            })
            .collect()
    };
    match address {
        Address::Tcp(socket) | Address::Tls(socket) => {
            format!("{scheme}://{socket}/{}", escape(export))
        }
        Address::Unix(path) => format!(
            "{scheme}+unix:///{}?socket={}",
            escape(export),
            escape(&absolute(path).display().to_string())
        ),
    }
}

/// An address as it is reached from any directory.
pub fn from_anywhere(address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("unix:{}", absolute(path).display()),
        tcp => tcp.to_string(),
    }
}

/// The path from the root, for use in another directory.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_written_as_clients_read_it() {
        let tcp: Address = "127.0.0.1:10809".parse().unwrap();
        assert_eq!(
            nbd_uri(&tcp, "vol 0", false),
            "nbd://127.0.0.1:10809/vol%200"
        );
        let unix: Address = "unix:/a b/s".parse().unwrap();
        assert_eq!(
            nbd_uri(&unix, "vol0", true),
            "nbds+unix:///vol0?socket=/a%20b/s"
        );
    }

    #[test]
    fn the_system_speaks_plainly() {
        let error = io::Error::from_raw_os_error(98);
        assert_eq!(plain(&error), "address already in use");
    }
}
