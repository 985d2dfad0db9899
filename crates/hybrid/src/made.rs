//! What does a label tell beside the way to the data: the mode of its volume, and which attachment it is.
//!
//! ```text
//! label -> of this volume, or its contents count -> the mode it keeps | made before modes were kept
//!       -> anything else                         -> no cache of the volume
//! ```
//!
//! A configuration that names a mode needs none of this. One that names none goes by what the label keeps, so the
//! mode of a volume does not change because the default does.

use std::rc::Rc;

use device::{Device, DeviceError};

use crate::engine::Hybrid;
use crate::label::Label;
use crate::tier::Mode;

/// What a fast device tells of the mode of its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeIn {
    /// No cache of the volume is on it.
    Nothing,
    /// A cache of a version that kept no mode; what named none was a block cache then.
    Earlier,
    /// A cache that keeps this mode.
    Mode(Mode),
}

/// What `fast` tells of the mode of the volume `name`. A label that cannot be used tells nothing: opening refuses it.
///
/// # Errors
/// The device is gone.
///
/// # Example
/// ```
/// use std::rc::Rc;
///
/// use base::Bytes;
/// use device::{Device, Memory};
/// use hybrid::{Hybrid, MadeIn, Mode, Settings, Ties, kept_mode};
///
/// env::Runtime::simulated(1).block_on(async {
///     let slow = Memory::new("hdd0", Bytes::mib(64));
///     let fast: Rc<dyn Device> = Memory::new("ssd0", Bytes::mib(8));
///     assert_eq!(kept_mode(&fast, "vol0").await?, MadeIn::Nothing);
///     let settings = Settings { name: "vol0".to_owned(), mode: Mode::Both, ..Settings::default() };
///     Hybrid::create(settings, slow, Rc::clone(&fast), Ties::default()).await?.close().await?;
///     assert_eq!(kept_mode(&fast, "vol0").await?, MadeIn::Mode(Mode::Both));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// }).unwrap();
/// ```
pub async fn kept_mode(fast: &Rc<dyn Device>, name: &str) -> Result<MadeIn, DeviceError> {
    let found = Label::read(fast).await?.ok();
    let ours = found.filter(|label| label.tie.counts() || label.is_of(name));
    Ok(match ours.map(|label| label.mode) {
        None => MadeIn::Nothing,
        Some(None) => MadeIn::Earlier,
        Some(Some(mode)) => MadeIn::Mode(mode),
    })
}

/// Which cache a volume has, and for the how-manieth time they came together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// The cache's identity.
    pub cache: u128,
    /// The number of the attachment.
    pub generation: u64,
}

impl Hybrid {
    /// The cache that the disk has now; `None` while the slow device stands alone.
    pub fn attachment(&self) -> Option<Attachment> {
        let cache = self.inner.live_cache()?;
        let label = cache.label.borrow();
        Some(Attachment {
            cache: label.uuid,
            generation: label.generation,
        })
    }
}
