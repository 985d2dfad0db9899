//! The bytes of a Parquet file, as its reader asks for them.

use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file, of which no more is read than it has.
pub(super) struct Plain {
    pub(super) file: Arc<File>,
    pub(super) len: u64,
}

/// Reads on from a place, without moving another's place.
pub(super) struct Onward {
    pub(super) file: Arc<File>,
    pub(super) at: u64,
}

impl Read for Onward {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Length for Plain {
    fn len(&self) -> u64 {
        self.len
    }
}

impl Plain {
    pub(super) fn check(&self, start: u64, length: u64) -> Result<(), ParquetError> {
        if start.checked_add(length).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at byte {start} of a file of {} bytes",
                self.len
            )));
        }
        Ok(())
    }
}

impl ChunkReader for Plain {
    type T = BufReader<Onward>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.check(start, 0)?;
        Ok(BufReader::new(Onward {
            file: Arc::clone(&self.file),
            at: start,
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes, ParquetError> {
        self.check(start, length as u64)?;
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}
