//! Why was a file or block device not opened, and what is to be done about it?

use std::io;
use std::path::PathBuf;

/// Why a file or block device was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing is there.
    #[error(
        "cannot open {}: there is no such file; check the path, or give a size to create it",
        path.display()
    )]
    Missing {
        /// What was to be opened.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error(
        "cannot open {}: it is {kind}; name a regular file or a block device",
        path.display()
    )]
    NotStorage {
        /// What was to be opened.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It holds less than a sector.
    #[error(
        "cannot use {}: it holds {size} bytes, less than one sector of 512; give it a size \
         (truncate -s), or remove it and have it created",
        path.display()
    )]
    Empty {
        /// What was to be opened.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// It can perhaps be read, but not written.
    #[error(
        "cannot open {} for writing: {source}; change its permissions or run as their owner, or \
         open it read-only",
        path.display()
    )]
    NotWritable {
        /// What was to be opened.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file system on it, or on a partition of it, is mounted.
    #[error(
        "cannot use {}: {part} is mounted on {at}; unmount it, or force it if you know that nothing \
         writes there",
        path.display()
    )]
    Mounted {
        /// What was to be opened.
        path: PathBuf,
        /// The device that is mounted: it or a partition of it.
        part: String,
        /// Where.
        at: String,
    },
    /// The kernel, or a program, has exclusive use of it.
    #[error(
        "cannot use {}: it is in use by {by}; end that use, or force it if you know that nothing \
         writes there",
        path.display()
    )]
    InUse {
        /// What was to be opened.
        path: PathBuf,
        /// By what, as far as the system says.
        by: String,
    },
    /// Another process has it open.
    #[error(
        "cannot use {}: {} has it open{}; stop that one first, or force it if you know that it does \
         not write",
        path.display(),
        holder(*pid),
        if *read_only { " for writing" } else { "" }
    )]
    Locked {
        /// What was to be opened.
        path: PathBuf,
        /// Who holds the lock, where the system says.
        pid: Option<u32>,
        /// Was it to be opened for reading only?
        read_only: bool,
    },
    /// Direct I/O was asked for and cannot be had.
    #[error("cannot open {} for direct I/O: {why}; open it with direct = \"auto\" or \"no\"", path.display())]
    NoDirect {
        /// What was to be opened.
        path: PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// The option makes no sense.
    #[error(
        "cannot open {} with blocks of {asked} bytes: name a power of two from 512 to 1048576",
        path.display()
    )]
    BlockSize {
        /// What was to be opened.
        path: PathBuf,
        /// The block size asked for, in bytes.
        asked: u64,
    },
    /// The system refused.
    #[error("cannot open {}: {source}", path.display())]
    System {
        /// What was to be opened.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) if pid == std::process::id() => format!("this process ({pid})"),
        Some(pid) => match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim_end()),
            Err(_) => format!("process {pid}"),
        },
        None => "another process".to_owned(),
    }
}
