//! What the holder of a reservation of stores shows at each of them, and all of it as one line.
//!
//! ```text
//! tanadaset1.<base64url of [{store, address, token}]>
//! ```

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What a set begins with.
pub const SET: &str = "tanadaset1.";
/// No set is longer.
const TEXT_MAX: usize = 4 << 20;

/// What a client shows at one store.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoreCapability {
    /// The store's identity, in 32 hexadecimal digits.
    pub store: String,
    /// Where it is reached.
    pub address: String,
    /// The capability.
    pub token: String,
}

/// All of them as one line; `None` where there are none.
pub fn encode_set(all: &[StoreCapability]) -> Option<String> {
    let json = serde_json::to_vec(all).expect("plain texts");
    (!all.is_empty()).then(|| format!("{SET}{}", URL_SAFE_NO_PAD.encode(json)))
}

/// What [`encode_set`] made a line of; `None` if it is no such line.
///
/// # Example
/// ```
/// use reservations::capability::{StoreCapability, decode_set, encode_set};
/// let text = |it: &str| it.to_owned();
/// let one = StoreCapability { store: text("07"), address: text("unix:s.sock"), token: text("tanada1.x.y") };
/// let line = encode_set(std::slice::from_ref(&one)).unwrap();
/// assert_eq!(decode_set(&line), Some(vec![one]));
/// assert_eq!(decode_set("tanada1.x.y"), None);
/// ```
pub fn decode_set(text: &str) -> Option<Vec<StoreCapability>> {
    let body = text.strip_prefix(SET).filter(|it| it.len() <= TEXT_MAX)?;
    let json = URL_SAFE_NO_PAD.decode(body).ok()?;
    let all = serde_json::from_slice::<Vec<StoreCapability>>(&json).ok()?;
    (!all.is_empty()).then_some(all)
}
