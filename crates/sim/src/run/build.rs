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

/// What was built, by name: what else is made of.
struct Named<'a> {
    stack: &'a Stack,
    devices: Vec<(String, Rc<dyn Device>)>,
}

impl Named<'_> {
    fn find(&self, name: &str) -> Result<Rc<dyn Device>, RunError> {
        let found = self.devices.iter().find(|(known, _)| known == name);
        let found = found.map(|(_, device)| Rc::clone(device));
        found.ok_or_else(|| RunError::Name {
            stack: self.stack.name.clone(),
            name: name.to_owned(),
        })
    }

    fn models(&mut self, seed: u64) -> Result<Vec<Watched>, RunError> {
        let mut watched = Vec::new();
        for (index, device) in (1..).zip(&self.stack.devices) {
            // Platters of a stack do not stand alike.
            let seed = seed ^ 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index);
            let (name, size) = (&device.name, device.size);
            let model = ModelDisk::new(name, &device.spec, Some(size), Store::None, seed);
            let model = model.map_err(|source| RunError::Model {
                stack: self.stack.name.clone(),
                device: name.clone(),
                source: Box::new(source),
            })?;
            let meter = Meter::new(model.clone());
            self.devices.push((name.clone(), meter.clone()));
            watched.push(Watched {
                name: name.clone(),
                spec_name: device.spec.name.clone(),
                size,
                model,
                meter,
            });
        }
        Ok(watched)
    }

    fn stripes(&mut self) -> Result<(), RunError> {
        for stripe in &self.stack.stripes {
            let members = stripe.members.iter().map(|name| self.find(name));
            let members = members.collect::<Result<Vec<_>, _>>()?;
            let whole = Striped::new(&*stripe.name, members, stripe.chunk);
            let whole = whole.map_err(|source| RunError::Stripe {
                stack: self.stack.name.clone(),
                source,
            })?;
            self.devices.push((stripe.name.clone(), whole));
        }
        Ok(())
    }

    async fn hybrids(&mut self) -> Result<Vec<(String, Rc<Hybrid>)>, RunError> {
        let mut hybrids = Vec::new();
        for made in &self.stack.hybrids {
            let (slow, fast) = (self.find(&made.slow)?, self.find(&made.fast)?);
            let hybrid = Hybrid::create(made.settings.clone(), slow, fast, Ties::default()).await;
            let hybrid = Rc::new(hybrid.map_err(|source| RunError::Hybrid {
                stack: self.stack.name.clone(),
                source: Box::new(source),
            })?);
            let name = made.settings.name.clone();
            self.devices.push((name.clone(), hybrid.clone()));
            hybrids.push((name, hybrid));
        }
        Ok(hybrids)
    }
}

/// To be called in a simulated runtime. Making a hybrid takes some time of it.
pub(super) async fn build(stack: Stack, seed: u64) -> Result<Built, RunError> {
    let mut named = Named {
        stack: &stack,
        devices: Vec::new(),
    };
    let devices = named.models(seed)?;
    named.stripes()?;
    let hybrids = named.hybrids().await?;
    let top = hybrids.iter().find(|(name, _)| *name == stack.volume);
    Ok(Built {
        volume: named.find(&stack.volume)?,
        top: top.map(|(_, hybrid)| Rc::clone(hybrid)),
        devices,
        hybrids,
    })
}
