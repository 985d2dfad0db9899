//! How a hybrid is, in a word.

use hybrid::Health;

/// As commands and metrics show it.
pub fn word(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::PassThrough => "pass-through",
        Health::Evacuating => "evacuating",
        Health::Failed => "failed",
        Health::CacheLost => "cache-lost",
        Health::Closed => "closed",
    }
}
