//! Where a Unix socket goes: its folder is made, if only that is missing.
//!
//! `/run` is empty after each start of a machine, so `/run/tanada` is made by the process that needs it. More than one missing
//! folder is rather a mistake in the path.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use env::net::Address;

/// Makes the folder of a socket's file, if it is not there and the one above it is.
///
/// # Errors
/// A sentence that names the folder and what to do.
pub fn make(address: &Address) -> anyhow::Result<()> {
    let Address::Unix(path) = address else {
        return Ok(());
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => return Ok(()),
    };
    let shown = folder.display();
    match fs::create_dir(folder) {
        Ok(()) => {
            tracing::info!("made the folder {shown} for the socket {}", path.display());
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above = folder.parent().unwrap_or(Path::new("/")).display();
            bail!(
                "cannot listen on {address}: there is no folder {above}; correct the path, or make it: mkdir -p {shown}"
            )
        }
        Err(error) => Err(error).with_context(|| {
            format!(
                "cannot make the folder {shown} for {address}; make it yours, or choose another one"
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(path: &Path) -> Address {
        Address::Unix(path.to_owned())
    }

    #[test]
    fn the_folder_of_a_socket_is_made_if_only_that_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("tanada");
        make(&socket(&folder.join("vol0.sock"))).unwrap();
        assert!(folder.is_dir());
        make(&socket(&folder.join("vol1.sock"))).unwrap();
        let far = dir.path().join("no/such/vol0.sock");
        let refused = make(&socket(&far)).unwrap_err().to_string();
        assert!(
            refused.contains("/no; correct the path") && refused.contains("mkdir -p"),
            "{refused}"
        );
    }
}
