//! What the holder of a reservation of stores shows at each of them.

use crate::book::what;
use crate::calendar::PartError;
use crate::error::ReservationError;
use crate::record::Target;
use crate::records::Versioned;
use crate::service::{Service, check_stands};

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

impl Service {
    /// What its holder shows at each store; nothing of a volume's, whose clients need none.
    ///
    /// # Errors
    /// [`ReservationError::Over`]; [`ReservationError::Unreachable`] if a store does not answer.
    pub async fn capabilities(
        &self,
        known: &Versioned,
    ) -> Result<Vec<StoreCapability>, ReservationError> {
        check_stands(&known.record)?;
        let is_of_stores = matches!(known.record.target, Target::Stores { .. });
        if !is_of_stores || known.record.terms.allotment {
            return Ok(Vec::new());
        }
        let facts = self.cluster.facts().await?;
        let mut all = Vec::new();
        for part in &known.record.parts {
            let name = facts.label(part.store);
            let failed = |error: PartError| {
                ReservationError::of_part(&what(&known.record.promise), name.clone(), error)
            };
            let place = known.record.target.place(part.store);
            let calendar = self.cluster.calendar(place).await.map_err(failed)?;
            // A part that its store does not know as committed yet is committed by this.
            let token = calendar.commit(part.name(known.id)).await.map_err(failed)?;
            let Some(store) = facts.stores.get(&part.store) else {
                continue;
            };
            all.push(StoreCapability {
                store: format!("{:032x}", store.uuid),
                address: store.address.clone(),
                token,
            });
        }
        Ok(all)
    }
}
