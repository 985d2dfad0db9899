//! Secrets of access keys at rest: AES-256-GCM under a key of this daemon, bound to the access key's name.
//!
//! ```text
//! base64 of: nonce (12 bytes, of chance) | the secret, encrypted | tag (16 bytes)
//! ```
//!
//! Always true: what was changed, or is another key's, opens to nothing.

use anyhow::anyhow;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::daemon::common::secrets::Key;

/// See the module's head.
pub struct Seal(LessSafeKey);

impl Seal {
    pub fn new(key: &Key) -> Seal {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key has 32 bytes");
        Seal(LessSafeKey::new(key))
    }

    /// The secret of the access key `name`, as it is kept.
    pub fn seal(&self, name: &str, secret: &str) -> anyhow::Result<String> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce)
            .map_err(|error| anyhow!("the system gives no randomness: {error}"))?;
        let mut sealed = secret.as_bytes().to_vec();
        let aad = Aad::from(name.as_bytes());
        let done =
            self.0
                .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed);
        done.map_err(|_| anyhow!("the secret cannot be sealed"))?;
        Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
    }

    /// The secret again; `None` if it was not sealed here, for this name.
    pub fn open(&self, name: &str, sealed: &str) -> Option<String> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let (mut rest, aad) = (rest.to_vec(), Aad::from(name.as_bytes()));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let secret = self.0.open_in_place(nonce, aad, &mut rest).ok()?;
        String::from_utf8(secret.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_under_its_own_name_and_key_alone() {
        let seal = Seal::new(&[7; 32]);
        let sealed = seal.seal("TA1", "secret").unwrap();
        assert_ne!(sealed, seal.seal("TA1", "secret").unwrap(), "by chance");
        assert_eq!(seal.open("TA1", &sealed).as_deref(), Some("secret"));
        assert_eq!(seal.open("TA2", &sealed), None);
        assert_eq!(Seal::new(&[8; 32]).open("TA1", &sealed), None);
        let mut bytes = STANDARD.decode(&sealed).unwrap();
        bytes[14] ^= 1;
        assert_eq!(seal.open("TA1", &STANDARD.encode(bytes)), None);
        assert_eq!(seal.open("TA1", "*"), None);
    }
}
