//! The stack, bottom to top: models, a meter on each, engines over them.

use std::rc::Rc;

use base::Bytes;
use device::model::{ModelDisk, Store};
use device::{Device, Meter, Striped};
use hybrid::{Hybrid, Ties};

use super::plan::{RunError, Stack};

/// A device and what is to be read off it.
pub(super) struct Watched {
    pub name: String,
    pub spec_name: String,
    pub size: Bytes,
    pub model: Rc<ModelDisk>,
    pub meter: Rc<Meter>,
}

/// A stack put together.
pub(super) struct Built {
    pub devices: Vec<Watched>,
    pub hybrids: Vec<(String, Rc<Hybrid>)>,
    pub volume: Rc<dyn Device>,
    /// The hybrid that is the volume, if it is one.
    pub top: Option<Rc<Hybrid>>,
}

/// To be called in a simulated runtime. Making a hybrid takes some time of it.
pub(super) async fn build(stack: Stack, seed: u64) -> Result<Built, RunError> {
    let unknown = |name: &str| RunError::Name {
        stack: stack.name.clone(),
        name: name.to_owned(),
    };
    let mut named: Vec<(String, Rc<dyn Device>)> = Vec::new();
    let mut devices = Vec::new();
    for (index, device) in (1..).zip(&stack.devices) {
        // Platters of a stack do not stand alike.
        let seed = seed ^ 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index);
        let model = ModelDisk::new(
            &device.name,
            &device.spec,
            Some(device.size),
            Store::None,
            seed,
        );
        let model = model.map_err(|source| RunError::Model {
            stack: stack.name.clone(),
            device: device.name.clone(),
            source: Box::new(source),
        })?;
        let meter = Meter::new(model.clone());
        named.push((device.name.clone(), meter.clone()));
        devices.push(Watched {
            name: device.name.clone(),
            spec_name: device.spec.name.clone(),
            size: device.size,
            model,
            meter,
        });
    }
    let find = |named: &[(String, Rc<dyn Device>)], name: &str| {
        let found = named.iter().find(|(known, _)| known == name);
        found
            .map(|(_, device)| Rc::clone(device))
            .ok_or_else(|| unknown(name))
    };
    for stripe in &stack.stripes {
        let members = stripe.members.iter().map(|name| find(&named, name));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let whole = Striped::new(&*stripe.name, members, stripe.chunk);
        let whole = whole.map_err(|source| RunError::Stripe {
            stack: stack.name.clone(),
            source,
        })?;
        named.push((stripe.name.clone(), whole));
    }
    let mut hybrids = Vec::new();
    for made in &stack.hybrids {
        let (slow, fast) = (find(&named, &made.slow)?, find(&named, &made.fast)?);
        let hybrid = Hybrid::create(made.settings.clone(), slow, fast, Ties::default()).await;
        let hybrid = hybrid.map_err(|source| RunError::Hybrid {
            stack: stack.name.clone(),
            source: Box::new(source),
        })?;
        let hybrid = Rc::new(hybrid);
        let name = made.settings.name.clone();
        named.push((name.clone(), hybrid.clone()));
        hybrids.push((name, hybrid));
    }
    let volume = find(&named, &stack.volume)?;
    let top = hybrids
        .iter()
        .find(|(name, _)| *name == stack.volume)
        .map(|(_, hybrid)| Rc::clone(hybrid));
    Ok(Built {
        devices,
        hybrids,
        volume,
        top,
    })
}
