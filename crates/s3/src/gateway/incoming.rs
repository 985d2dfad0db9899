//! Bytes that come: hashed as they come, small ones for the index, the rest to the stores.
//!
//! ```text
//! body, frame by frame -> MD5, checksum -> at most 16 KiB of an object: for the index
//!                                       -> more: pieces of 1 MiB, four under way -> stores -> flush
//! at the end: Content-MD5, x-amz-checksum-... as header or trailer: are they what was computed?
//! ```
//!
//! Always true:
//! 1. What `receive` answers is durable, or small enough for the index.
//! 2. Bytes that become no object are given up, whatever ends the request; a crash leaves them to the sweep.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hyper::HeaderMap;
use md5::{Digest, Md5};
use policy::share::Direction;
use s3s::crypto::Checksum as _;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders, s3_error};

use super::core::Gateway;
use super::failure::unstored;
use super::service::{Service, soon};
use super::turns::Turn;
use crate::index::record::{BlobRef, Checksum};
use crate::index::{Index, Transaction, Use, hex};

/// The longest object or part that comes in one request: 5 GiB.
const BODY_MAX: u64 = 5 << 30;
/// What is written at once.
const PIECE: usize = 1 << 20;
/// Pieces under way.
const AT_ONCE: usize = 4;
/// Of headers and trailers, before the algorithm.
const CHECKSUM: &str = "x-amz-checksum-";
/// The algorithms, by the ends of those headers.
const ALGORITHMS: [(&str, &str); 5] = [
    ("crc32", "CRC32"),
    ("crc32c", "CRC32C"),
    ("crc64nvme", "CRC64NVME"),
    ("sha1", "SHA1"),
    ("sha256", "SHA256"),
];

/// What is said of bytes beforehand, or behind them.
pub(super) struct Promised {
    /// In base64.
    pub md5: Option<String>,
    /// How many there are.
    pub length: Option<i64>,
    algorithm: Option<&'static str>,
    checksum: Option<String>,
    trailers: Option<TrailingHeaders>,
}

impl Promised {
    /// As the headers of the request have it.
    pub fn of(
        headers: &HeaderMap,
        trailers: Option<TrailingHeaders>,
        length: Option<i64>,
    ) -> S3Result<Promised> {
        let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        let mut given = ALGORITHMS.iter().filter_map(|(end, name)| {
            let value = text(&format!("{CHECKSUM}{end}"))?;
            Some((*name, value.to_owned()))
        });
        let checksum = given.next();
        if given.next().is_some() {
            return Err(s3_error!(
                InvalidRequest,
                "send one x-amz-checksum- header, not several"
            ));
        }
        let announced = text("x-amz-trailer").and_then(|it| {
            let end = it.trim().to_ascii_lowercase();
            named(end.strip_prefix(CHECKSUM)?)
        });
        let asked =
            text("x-amz-sdk-checksum-algorithm").and_then(|it| named(&it.to_ascii_lowercase()));
        Ok(Promised {
            md5: text("content-md5").map(str::to_owned),
            length,
            algorithm: checksum.as_ref().map(|it| it.0).or(announced).or(asked),
            checksum: checksum.map(|it| it.1),
            trailers,
        })
    }

    /// With this algorithm where the request says none.
    #[must_use]
    pub fn or_algorithm(mut self, name: Option<&str>) -> Promised {
        let known = name.and_then(|name| ALGORITHMS.iter().find(|it| it.1 == name));
        self.algorithm = self.algorithm.or(known.map(|it| it.1));
        self
    }

    fn trailer(&self) -> Option<String> {
        let end = ALGORITHMS.iter().find(|it| Some(it.1) == self.algorithm)?.0;
        let name = format!("{CHECKSUM}{end}");
        let read = |headers: &HeaderMap| headers.get(&name)?.to_str().ok().map(str::to_owned);
        self.trailers.as_ref()?.read(read)?
    }
}

fn named(end: &str) -> Option<&'static str> {
    let found = ALGORITHMS.iter().find(|it| it.0 == end);
    found.map(|it| it.1)
}

/// What came.
pub(super) struct Received {
    pub size: u64,
    /// In hexadecimal digits.
    pub md5: String,
    pub checksum: Option<Checksum>,
    /// All bytes, if they are few.
    pub inline: Bytes,
    /// Where they are, otherwise.
    pub blob: Option<Unfinished>,
}

impl Received {
    /// Where the bytes are, once the index has them.
    pub fn blobs(&self) -> Vec<BlobRef> {
        self.blob.iter().map(|it| it.blob.clone()).collect()
    }

    /// The index has them.
    pub fn finished(self) {
        if let Some(blob) = self.blob {
            blob.finished();
        }
    }
}

/// Bytes that belong to no object yet: dropped before `finished`, they are to be deleted.
pub(super) struct Unfinished {
    pub blob: BlobRef,
    index: Option<Arc<Index>>,
    /// No sweep takes it for one that was left.
    using: Option<Use>,
}

impl Unfinished {
    fn finished(mut self) {
        self.index = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(index) = self.index.take() else {
            return;
        };
        let (blob, using) = (self.blob.clone(), self.using.take());
        // Outlives the request. Without a runtime the program ends, and the sweep finds them.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let give_up = move |t: &mut Transaction<'_>| t.give_up(&blob);
                drop(index.change(give_up).await);
                drop(using);
            });
        }
    }
}

/// The hashes of bytes as they come.
struct Hashes {
    md5: Md5,
    checksum: s3s::checksum::ChecksumHasher,
}

impl Hashes {
    fn new(algorithm: Option<&str>) -> Hashes {
        let is = |name: &str| algorithm == Some(name);
        Hashes {
            md5: Md5::new(),
            checksum: s3s::checksum::ChecksumHasher {
                crc32: is("CRC32").then(s3s::crypto::Crc32::new),
                crc32c: is("CRC32C").then(s3s::crypto::Crc32c::new),
                sha1: is("SHA1").then(s3s::crypto::Sha1::new),
                sha256: is("SHA256").then(s3s::crypto::Sha256::new),
                crc64nvme: is("CRC64NVME").then(s3s::crypto::Crc64Nvme::new),
            },
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.checksum.update(bytes);
    }

    /// The MD5 in hexadecimal digits, and the checksum.
    fn finish(self, promised: &Promised) -> S3Result<(String, Option<Checksum>)> {
        let md5 = self.md5.finalize();
        if let Some(expected) = &promised.md5 {
            let expected = STANDARD.decode(expected).ok().filter(|it| it.len() == 16);
            let expected = expected.ok_or_else(|| s3_error!(InvalidDigest))?;
            if expected[..] != md5[..] {
                return Err(s3_error!(BadDigest, "the bytes that came have another MD5"));
            }
        }
        let computed = value_of(self.checksum.finalize());
        let checksum = promised
            .algorithm
            .zip(computed)
            .map(|(name, value)| Checksum {
                algorithm: name.to_owned(),
                value,
                full_object: true,
            });
        let expected = promised.checksum.clone().or_else(|| promised.trailer());
        match (&checksum, expected) {
            (Some(found), Some(expected)) if found.value != expected => Err(S3Error::with_message(
                S3ErrorCode::BadDigest,
                format!(
                    "the bytes that came have {} {}, and {expected} was said",
                    found.algorithm, found.value
                ),
            )),
            _ => Ok((hex(&md5), checksum)),
        }
    }
}

/// The checksum of bytes by an algorithm's name, raw.
pub(super) fn checksum_of(algorithm: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut hashes = Hashes::new(Some(algorithm));
    hashes.checksum.update(bytes);
    STANDARD.decode(value_of(hashes.checksum.finalize())?).ok()
}

fn value_of(computed: s3s::dto::Checksum) -> Option<String> {
    computed
        .checksum_crc32
        .or(computed.checksum_crc32c)
        .or(computed.checksum_crc64nvme)
        .or(computed.checksum_sha1)
        .or(computed.checksum_sha256)
}

/// Takes all bytes of a request for an object or a part in the bucket `folder`; up to `inline_max` are for the index.
pub(super) async fn receive(
    gateway: &Gateway,
    (folder, service): (&str, &Service),
    body: Option<StreamingBlob>,
    promised: &Promised,
    inline_max: usize,
) -> S3Result<Received> {
    gateway.check_room()?;
    if promised.length.is_some_and(|it| it > BODY_MAX as i64) {
        return Err(too_long());
    }
    let mut hashes = Hashes::new(promised.algorithm);
    let mut waiting = BytesMut::new();
    let mut writing: Option<Writing<'_>> = None;
    let mut size = 0;
    if let Some(mut body) = body {
        while let Some(frame) = body.next().await {
            let frame = frame.map_err(unread)?;
            size += frame.len() as u64;
            if size > BODY_MAX {
                return Err(too_long());
            }
            hashes.update(&frame);
            waiting.extend_from_slice(&frame);
            if waiting.len() > inline_max && writing.is_none() {
                writing = Some(Writing::begin(gateway, folder, service).await?);
            }
            if let Some(writing) = &mut writing {
                while waiting.len() >= PIECE {
                    writing.write(waiting.split_to(PIECE).freeze()).await?;
                }
            }
        }
    }
    if let Some(length) = promised.length.filter(|it| *it != size as i64) {
        return Err(s3_error!(IncompleteBody, "{size} of {length} bytes came"));
    }
    let (md5, checksum) = hashes.finish(promised)?;
    let rest = waiting.freeze();
    let (inline, blob) = match writing {
        Some(writing) => (Bytes::new(), Some(writing.end(rest, size).await?)),
        None => {
            let passed = gateway.data.pass(&service.qos, Direction::Write, size);
            soon(passed).await?.map_err(unstored)?;
            (rest, None)
        }
    };
    Ok(Received {
        size,
        md5,
        checksum,
        inline,
        blob,
    })
}

fn too_long() -> S3Error {
    s3_error!(
        EntityTooLarge,
        "one request has at most {BODY_MAX} bytes: upload the object in parts"
    )
}

/// The client sent something else than its signature says, or hung up.
fn unread(error: s3s::StdError) -> S3Error {
    let text = error.to_string();
    let code = match () {
        () if text.contains("Sha256Mismatch") => {
            S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into())
        }
        () if text.contains("Signature") => S3ErrorCode::SignatureDoesNotMatch,
        () if text.contains("Incomplete") || text.contains("LengthMismatch") => {
            S3ErrorCode::IncompleteBody
        }
        () => S3ErrorCode::IncompleteBody,
    };
    let mut error = S3Error::with_message(code, format!("the body did not come as signed: {text}"));
    error.set_status_code(hyper::StatusCode::BAD_REQUEST);
    error
}

/// Bytes on their way to the stores.
struct Writing<'g> {
    _turn: Turn,
    gateway: &'g Gateway,
    service: &'g Service,
    unfinished: Unfinished,
    under_way: FuturesUnordered<futures::future::BoxFuture<'static, Result<(), crate::DataError>>>,
    offset: u64,
}

impl<'g> Writing<'g> {
    async fn begin(
        gateway: &'g Gateway,
        folder: &str,
        service: &'g Service,
    ) -> S3Result<Writing<'g>> {
        let turn = gateway.coming.take(&service.lane, service.promised > 0);
        let turn = soon(turn).await??;
        let blob = gateway.new_blob(folder)?;
        let unfinished = Unfinished {
            using: Some(gateway.index.in_use().begin([&blob])),
            blob,
            index: Some(Arc::clone(&gateway.index)),
        };
        Ok(Writing {
            _turn: turn,
            gateway,
            service,
            unfinished,
            under_way: FuturesUnordered::new(),
            offset: 0,
        })
    }

    async fn write(&mut self, piece: Bytes) -> S3Result<()> {
        while self.under_way.len() >= AT_ONCE {
            self.next().await?;
        }
        let (data, blob, offset) = (
            self.gateway.data.clone(),
            self.unfinished.blob.clone(),
            self.offset,
        );
        self.offset += piece.len() as u64;
        self.unfinished.blob.size = self.offset;
        let qos = self.service.qos.clone();
        let write = async move { data.write(&qos, (&blob, offset), piece).await };
        self.under_way.push(Box::pin(write));
        Ok(())
    }

    async fn next(&mut self) -> S3Result<()> {
        match soon(self.under_way.next()).await? {
            Some(Err(error)) => Err(unstored(error)),
            _ => Ok(()),
        }
    }

    async fn end(mut self, rest: Bytes, size: u64) -> S3Result<Unfinished> {
        if !rest.is_empty() {
            self.write(rest).await?;
        }
        while !self.under_way.is_empty() {
            self.next().await?;
        }
        self.gateway.data.flush().await.map_err(unstored)?;
        self.unfinished.blob.size = size;
        Ok(self.unfinished)
    }
}
