//! The file a trace goes to: packed as its name says, named once it is whole.

use std::fs::Permissions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::NamedTempFile;

use crate::error::WriteError;

/// How hard zstd tries: its own default, which keeps up with the CSV writer's disk.
const ZSTD_LEVEL: i32 = 3;

/// What a file is packed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Nothing.
    Plain,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl Packing {
    /// What the ending of a name asks for: `.gz` or `.zst`, else nothing.
    #[must_use]
    pub fn of_name(path: &Path) -> Packing {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz") => Packing::Gzip,
            Some("zst" | "zstd") => Packing::Zstd,
            _ => Packing::Plain,
        }
    }
}

/// Where the bytes end up.
enum Target {
    /// Beside where it will stand.
    File(NamedTempFile),
    Stdout(io::Stdout),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::File(file) => file.write(bytes),
            Target::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::File(file) => file.flush(),
            Target::Stdout(stdout) => stdout.flush(),
        }
    }
}

/// Counts what arrives.
struct Counted {
    target: Target,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.target.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.flush()
    }
}

enum Packer {
    Plain(BufWriter<Counted>),
    Gzip(GzEncoder<BufWriter<Counted>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<Counted>>),
}

/// Takes the bytes of the trace before they are packed.
pub struct Output {
    packer: Packer,
    path: PathBuf,
    force: bool,
}

impl Output {
    pub(crate) fn create(path: &Path, force: bool) -> Result<Output, WriteError> {
        let failed = |source| WriteError::Io {
            file: path.to_owned(),
            source,
        };
        let target = if path == Path::new("-") {
            Target::Stdout(io::stdout())
        } else {
            if !force && path.symlink_metadata().is_ok() {
                return Err(WriteError::Exists {
                    file: path.to_owned(),
                });
            }
            let folder = match path.parent() {
                Some(folder) if folder != Path::new("") => folder,
                _ => Path::new("."),
            };
            // As any new file: what the user's mask leaves of it.
            let file = tempfile::Builder::new()
                .prefix(".tanada-trace-")
                .permissions(Permissions::from_mode(0o666))
                .tempfile_in(folder)
                .map_err(failed)?;
            Target::File(file)
        };
        let buffered = BufWriter::with_capacity(256 << 10, Counted { target, bytes: 0 });
        let packer = match Packing::of_name(path) {
            Packing::Plain => Packer::Plain(buffered),
            Packing::Gzip => Packer::Gzip(GzEncoder::new(buffered, Compression::default())),
            Packing::Zstd => {
                let encoder =
                    zstd::stream::write::Encoder::new(buffered, ZSTD_LEVEL).map_err(failed)?;
                Packer::Zstd(encoder)
            }
        };
        Ok(Output {
            packer,
            path: path.to_owned(),
            force,
        })
    }

    /// Ends the file and gives it its name; answers its length.
    pub fn finish(self) -> Result<u64, WriteError> {
        let path = self.path;
        let failed = |source| WriteError::Io {
            file: path.clone(),
            source,
        };
        let buffered = match self.packer {
            Packer::Plain(to) => Ok(to),
            Packer::Gzip(to) => to.finish(),
            Packer::Zstd(to) => to.finish(),
        };
        let buffered = buffered.map_err(failed)?;
        let mut counted = buffered
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        counted.flush().map_err(failed)?;
        if let Target::File(file) = counted.target {
            file.as_file().sync_all().map_err(failed)?;
            let named = match self.force {
                true => file.persist(&path),
                false => file.persist_noclobber(&path),
            };
            named.map_err(|error| match error.error.kind() {
                io::ErrorKind::AlreadyExists => WriteError::Exists { file: path.clone() },
                _ => failed(error.error),
            })?;
        }
        Ok(counted.bytes)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.packer {
            Packer::Plain(to) => to.write(bytes),
            Packer::Gzip(to) => to.write(bytes),
            Packer::Zstd(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.packer {
            Packer::Plain(to) => to.flush(),
            Packer::Gzip(to) => to.flush(),
            Packer::Zstd(to) => to.flush(),
        }
    }
}
