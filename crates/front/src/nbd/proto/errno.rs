//! Error numbers of replies.

use device::DeviceError;

/// Error numbers of replies; anything else a server sends counts as `Invalid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// Out of memory.
    NoMemory = 12,
    /// The request makes no sense.
    Invalid = 22,
    /// No space, or a write behind the end.
    NoSpace = 28,
    /// Too long to answer in one piece.
    Overflow = 75,
    /// Cannot be done as asked.
    NotSupported = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    /// As the system's manual calls it.
    pub fn word(self) -> &'static str {
        match self {
            Errno::Perm => "EPERM",
            Errno::Io => "EIO",
            Errno::NoMemory => "ENOMEM",
            Errno::Invalid => "EINVAL",
            Errno::NoSpace => "ENOSPC",
            Errno::Overflow => "EOVERFLOW",
            Errno::NotSupported => "ENOTSUP",
            Errno::Shutdown => "ESHUTDOWN",
        }
    }

    /// The error a code on the wire stands for.
    pub fn of(code: u32) -> Errno {
        match code {
            1 => Errno::Perm,
            5 => Errno::Io,
            12 => Errno::NoMemory,
            28 => Errno::NoSpace,
            75 => Errno::Overflow,
            95 => Errno::NotSupported,
            108 => Errno::Shutdown,
            _ => Errno::Invalid,
        }
    }

    /// The code on the wire.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The error that a client gets for a device's failure.
    pub fn of_device(error: &DeviceError) -> Errno {
        match error {
            DeviceError::OutOfRange { .. } => Errno::Invalid,
            DeviceError::ReadOnly { .. } => Errno::Perm,
            DeviceError::NoSpace { .. } => Errno::NoSpace,
            _ => Errno::Io,
        }
    }
}
