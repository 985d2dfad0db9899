//! Taking a file or block device for us alone: refused where it is mounted, held or locked.
//!
//! ```text
//! kind -> mounted, held? -> claim (O_EXCL) -> open, direct or not -> lock (flock)
//! ```
//!
//! What is about to become free is looked at again for a while.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use base::SECTOR;
use env::fs::Direct;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::FileOptions;
use super::error::OpenError;
use super::kernel::{block_number, kernel_name, kernel_user, mount_of, number, parts, who_locks};

/// Looks again after this long, while a device or file may be about to become free.
const LOOK_AGAIN: rustix::event::Timespec = rustix::event::Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
/// So often if another process holds it. Udev probes a device for some milliseconds after each use, and a
/// process being started holds everything its parent has open until it runs.
const LOOKS_IF_HELD: u32 = 20;
/// So often if its holder has ended: the lock of a process that was killed goes when the kernel has
/// ended its last requests.
const LOOKS_IF_LEFT: u32 = 500;

/// Waits before the next look. Blocks: opening comes before anything this could hold up.
fn pause() {
    let _ = rustix::event::poll(&mut [], Some(&LOOK_AGAIN));
}

/// Refuses a block device that is mounted or held, and takes it for us until the answer drops.
fn claim(
    path: &Path,
    status: &std::fs::Metadata,
    options: &FileOptions,
) -> Result<Option<OwnedFd>, OpenError> {
    let devices = parts(number(status.rdev()));
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = mount_of(&mountinfo, &devices, block_number);
    if let (Some((part, at)), false) = (mounted, options.force) {
        return Err(OpenError::Mounted {
            path: path.to_owned(),
            part: kernel_name(part),
            at,
        });
    }
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let mut looks = 0;
    let errno = loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(claim) => return Ok(Some(claim)),
            Err(Errno::BUSY) if options.force => return Ok(None),
            Err(Errno::BUSY) if looks < LOOKS_IF_HELD => {
                looks += 1;
                pause();
            }
            Err(errno) => break errno,
        }
    };
    let path = path.to_owned();
    Err(match (errno, who_locks(status), kernel_user(&devices)) {
        (Errno::BUSY, pid @ Some(_), _) => OpenError::Locked {
            path,
            pid,
            read_only: options.read_only,
        },
        (Errno::BUSY, None, by) => OpenError::InUse {
            path,
            by: by.unwrap_or_else(|| {
                "the kernel or another program (a mount elsewhere, RAID, LVM)".to_owned()
            }),
        },
        _ => OpenError::System {
            path,
            source: errno.into(),
        },
    })
}

fn kind_of(status: &std::fs::Metadata) -> Option<&'static str> {
    let kind = status.file_type();
    if kind.is_file() || kind.is_block_device() {
        return None;
    }
    Some(match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_char_device() => "a character device",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "something else",
    })
}

fn is_alive(pid: u32) -> bool {
    // "1234 (name) S ...": the name may hold anything, also a parenthesis.
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Takes the lock that keeps a second Tanada out.
fn lock(file: &env::fs::File, path: &Path, options: &FileOptions) -> Result<(), OpenError> {
    let kind = match options.read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let mut looks = 0;
    loop {
        match rustix::fs::flock(file.descriptor(), kind) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if options.force => {
                tracing::warn!(path = %path.display(), "another process has it open; forced");
                return Ok(());
            }
            Err(Errno::WOULDBLOCK) => {
                let pid = std::fs::metadata(path).ok().as_ref().and_then(who_locks);
                let held = pid.is_some_and(is_alive);
                if looks >= if held { LOOKS_IF_HELD } else { LOOKS_IF_LEFT } {
                    return Err(OpenError::Locked {
                        path: path.to_owned(),
                        pid,
                        read_only: options.read_only,
                    });
                }
                looks += 1;
                pause();
            }
            Err(errno) => {
                // Some network file systems have no locks: say so, and go on without.
                tracing::warn!(path = %path.display(), error = %errno, "cannot be locked");
                return Ok(());
            }
        }
    }
}

fn open_with(
    path: &Path,
    options: &FileOptions,
    direct: Direct,
) -> Result<env::fs::File, OpenError> {
    let below = env::fs::Options {
        read_only: options.read_only,
        direct,
        create: options.create,
    };
    env::fs::File::open(path, &below).map_err(|source| {
        let path = path.to_owned();
        let refused = matches!(
            source.kind(),
            io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::ExecutableFileBusy
        );
        if refused && !options.read_only {
            OpenError::NotWritable { path, source }
        } else if direct == Direct::Yes && source.kind() == io::ErrorKind::Unsupported {
            let why = source.to_string();
            OpenError::NoDirect { path, why }
        } else {
            OpenError::System { path, source }
        }
    })
}

/// Is what is at `path` free: if it is a block device, neither mounted nor held, nor a partition of it?
pub(super) fn free(path: &Path) -> Result<(), OpenError> {
    claim_existing(path, &FileOptions::default()).map(drop)
}

/// What a device is made of once it is ours.
pub(super) struct Taken {
    pub(super) file: env::fs::File,
    /// Our exclusive use of a block device.
    pub(super) claim: Option<OwnedFd>,
}

/// Opens what is at `path`, for us alone.
///
/// # Errors
/// [`OpenError`], by what stands in the way.
pub(super) fn take(path: &Path, options: &FileOptions) -> Result<Taken, OpenError> {
    let (claim, block_device) = claim_existing(path, options)?;
    let mut file = match (block_device, options.direct) {
        // A node in `/dev` lives on a file system in memory; the device behind it does not, so
        // "where it makes sense" is not left to the file system.
        (true, Direct::Auto) => match open_with(path, options, Direct::Yes) {
            Err(OpenError::NoDirect { .. }) => open_with(path, options, Direct::No)?,
            answer => answer?,
        },
        (_, direct) => open_with(path, options, direct)?,
    };
    let align = file.dio_align() as u64;
    if align > SECTOR && file.size().0 % align != 0 {
        // Direct I/O could not reach the last sectors.
        let size = file.size().0;
        let why = format!("its {size} bytes are not whole blocks of {align}");
        if options.direct == Direct::Yes {
            let path = path.to_owned();
            return Err(OpenError::NoDirect { path, why });
        }
        tracing::warn!(path = %path.display(), why, "going through the page cache");
        file = open_with(path, options, Direct::No)?;
    }
    lock(&file, path, options)?;
    Ok(Taken { file, claim })
}

/// Claims what is at `path`, if it is a block device; the answer says whether it is one. Where nothing is, it must be
/// asked for that it be created.
fn claim_existing(
    path: &Path,
    options: &FileOptions,
) -> Result<(Option<OwnedFd>, bool), OpenError> {
    match std::fs::metadata(path) {
        Ok(status) => {
            if let Some(kind) = kind_of(&status) {
                let path = path.to_owned();
                return Err(OpenError::NotStorage { path, kind });
            }
            match status.file_type().is_block_device() {
                true => Ok((claim(path, &status, options)?, true)),
                false => Ok((None, false)),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if options.create.is_none() {
                let path = path.to_owned();
                return Err(OpenError::Missing { path });
            }
            Ok((None, false))
        }
        Err(source) => Err(OpenError::System {
            path: path.to_owned(),
            source,
        }),
    }
}
