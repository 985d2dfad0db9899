//! The negotiation of a connection that the kernel goes on with.
//!
//! ```text
//! greeting -> flags -> GO: size, flags, block, description -> the kernel's requests
//! ```
//!
//! It asks for nothing that the kernel does not speak: no structured replies, no contexts, no TLS.
//!
//! Always true: a reply is one to the option just sent, and at most 32 KiB long.

use std::io::{self, Read, Write};

use super::super::proto::{self, Fields, GREETING_LEN, OPTION_REPLY_LEN, OPTION_REPLY_MAGIC};
use super::super::proto::{can, handshake, info, opt, rep};

const REPLY_MAX: usize = 32 << 10;

/// An export, as the kernel is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offered {
    /// In bytes.
    pub size: u64,
    /// The transmission flags.
    pub flags: u16,
    /// The block size that it prefers, in bytes.
    pub block: u32,
    /// The server's, for people.
    pub description: String,
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Agrees on `export` over a stream that has just been connected.
///
/// # Errors
/// The stream broke, the server refused, or it does not speak the protocol.
pub fn agree(stream: &mut (impl Read + Write), export: &str) -> io::Result<Offered> {
    let mut greeting = [0; GREETING_LEN];
    stream.read_exact(&mut greeting)?;
    let mut fields = Fields(&greeting);
    if (fields.u64(), fields.u64()) != (Some(proto::GREETING_MAGIC), Some(proto::OPTION_MAGIC)) {
        return Err(wrong("the server's greeting is not newstyle NBD"));
    }
    let offered = fields.u16().unwrap_or(0);
    if offered & handshake::FIXED_NEWSTYLE == 0 {
        return Err(wrong("the server does not offer fixed newstyle"));
    }
    let taken = offered & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
    stream.write_all(&u32::from(taken).to_be_bytes())?;
    let mut ask = Vec::new();
    proto::put_string(&mut ask, export);
    let wanted = [info::DESCRIPTION, info::BLOCK_SIZE];
    ask.extend((wanted.len() as u16).to_be_bytes());
    wanted
        .iter()
        .for_each(|kind| ask.extend(kind.to_be_bytes()));
    let mut option = Vec::new();
    proto::put_option(&mut option, opt::GO, &ask);
    stream.write_all(&option)?;
    facts(stream)
}

/// What the server says of the export, up to its last word.
fn facts(stream: &mut impl Read) -> io::Result<Offered> {
    let mut found = Offered {
        block: 4096,
        ..Offered::default()
    };
    loop {
        let (kind, data) = reply(stream)?;
        match kind {
            rep::ACK if found.flags & can::HAS_FLAGS == 0 => {
                return Err(wrong("the server did not describe the export"));
            }
            rep::ACK => return Ok(found),
            rep::INFO => take(&mut found, &data)
                .ok_or_else(|| wrong("what the server says of the export makes no sense"))?,
            kind if kind & rep::ERROR != 0 => {
                let why = String::from_utf8_lossy(&data).into_owned();
                let why = match (why.is_empty(), kind) {
                    (false, _) => why,
                    (true, rep::ERR_TLS_REQD) => {
                        "it wants TLS, which the kernel does not speak".to_owned()
                    }
                    (true, rep::ERR_UNKNOWN) => "there is no export of this name".to_owned(),
                    (true, kind) => format!("reply {kind:#x}"),
                };
                return Err(io::Error::other(format!("the server refused: {why}")));
            }
            _ => {}
        }
    }
}

fn reply(stream: &mut impl Read) -> io::Result<(u32, Vec<u8>)> {
    let mut head = [0; OPTION_REPLY_LEN];
    stream.read_exact(&mut head)?;
    let mut fields = Fields(&head);
    if (fields.u64(), fields.u32()) != (Some(OPTION_REPLY_MAGIC), Some(opt::GO)) {
        return Err(wrong("the server's reply is not one to what was asked"));
    }
    let kind = fields.u32().unwrap_or(0);
    let len = fields.u32().unwrap_or(u32::MAX) as usize;
    if len > REPLY_MAX {
        return Err(wrong(format!(
            "the server's reply of {len} bytes is too long"
        )));
    }
    let mut data = vec![0; len];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}

fn take(found: &mut Offered, data: &[u8]) -> Option<()> {
    let mut fields = Fields(data);
    match fields.u16()? {
        info::EXPORT => {
            found.size = fields.u64()?;
            found.flags = fields.u16()?;
        }
        info::DESCRIPTION => found.description = String::from_utf8_lossy(fields.0).into_owned(),
        info::BLOCK_SIZE => {
            let (_, preferred, _) = (fields.u32()?, fields.u32()?, fields.u32()?);
            // The kernel takes a power of two, up to a page.
            found.block = preferred.clamp(512, 4096).next_power_of_two().min(4096);
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says what it is to say, whatever it hears.
    struct Says(Vec<u8>, usize, Vec<u8>);

    impl Read for Says {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let rest = &self.0[self.1..];
            let n = rest.len().min(out.len());
            out[..n].copy_from_slice(&rest[..n]);
            self.1 += n;
            Ok(n)
        }
    }

    impl Write for Says {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.2.extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn server(replies: &[(u32, Vec<u8>)]) -> Says {
        let mut says = proto::greeting().to_vec();
        for (kind, data) in replies {
            proto::put_option_reply(&mut says, opt::GO, *kind, data);
        }
        Says(says, 0, Vec::new())
    }

    fn export(size: u64) -> Vec<u8> {
        let mut fact = info::EXPORT.to_be_bytes().to_vec();
        fact.extend(size.to_be_bytes());
        fact.extend((can::HAS_FLAGS | can::FLUSH).to_be_bytes());
        fact
    }

    #[test]
    fn an_export_is_agreed_on_and_described() {
        let words = [&info::DESCRIPTION.to_be_bytes()[..], b"a disk"].concat();
        let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [512u32, 8192, 1 << 20] {
            sizes.extend(size.to_be_bytes());
        }
        let facts = [
            (rep::INFO, export(1 << 20)),
            (rep::INFO, words),
            (rep::INFO, sizes),
            (rep::ACK, Vec::new()),
        ];
        let mut server = server(&facts);
        let found = agree(&mut server, "vol0").expect("it agrees");
        let flags = can::HAS_FLAGS | can::FLUSH;
        let wanted = Offered {
            size: 1 << 20,
            flags,
            block: 4096,
            description: "a disk".to_owned(),
        };
        assert_eq!(found, wanted);
        assert!(server.2.windows(4).any(|it| it == b"vol0"));
        assert_eq!(server.1, server.0.len(), "nothing of the kernel's is read");
    }

    #[test]
    fn a_refusal_and_nonsense_are_said() {
        let said =
            |replies: &[(u32, Vec<u8>)]| agree(&mut server(replies), "v").unwrap_err().to_string();
        assert!(said(&[(rep::ERR_UNKNOWN, b"no such thing".to_vec())]).contains("no such thing"));
        assert!(said(&[(rep::ERR_TLS_REQD, Vec::new())]).contains("TLS"));
        assert!(said(&[(rep::ACK, Vec::new())]).contains("did not describe"));
        assert!(said(&[(rep::INFO, vec![0, 0, 1])]).contains("makes no sense"));
        assert!(said(&[(rep::INFO, vec![0; REPLY_MAX + 1])]).contains("too long"));
        let mut silent = Says(vec![0; 18], 0, Vec::new());
        assert!(
            agree(&mut silent, "v")
                .unwrap_err()
                .to_string()
                .contains("not newstyle")
        );
    }
}
