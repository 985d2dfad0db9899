//! What the holder of a reservation of stores shows at each of them.

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
