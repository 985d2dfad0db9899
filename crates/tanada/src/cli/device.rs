//! `tanada device ...`: a daemon's devices; disks for its group (`device_claim`).

use super::client::Client;
use super::options::Device;
use super::{device_claim, show};
use crate::api;

/// Runs one of them.
pub fn run(command: Device) -> anyhow::Result<()> {
    match command {
        Device::List(ask) => {
            let devices: Vec<api::status::Device> = Client::new(ask.admin)?.get("/v1/devices")?;
            show::answer(ask.json, &devices, || show::devices(&devices))
        }
        Device::Show { name, ask } => {
            let all: Vec<api::status::Device> = Client::new(ask.admin)?.get("/v1/devices")?;
            let one = show::only(all, ("device", &name), |it| &it.name)?;
            show::answer(ask.json, &one, || show::device(&one))
        }
        Device::Claim(disk) => device_claim::claim(&disk),
        Device::Release(disk) => device_claim::release(&disk),
        Device::Old(old) => unreachable!("{old:?} is read as its new spelling"),
    }
}
