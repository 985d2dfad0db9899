//! What can go wrong in a run, before it is known in which.

use device::DeviceError;
use device::model::SpecError;
use hybrid::OpenError;

use crate::experiment::ExperimentError;

/// What went wrong, before it is known where.
#[derive(Debug)]
pub(crate) enum Trouble {
    Device(Box<DeviceError>),
    Model(Box<SpecError>),
    Open(Box<OpenError>),
}

impl From<DeviceError> for Trouble {
    fn from(error: DeviceError) -> Trouble {
        Trouble::Device(Box::new(error))
    }
}

impl From<SpecError> for Trouble {
    fn from(error: SpecError) -> Trouble {
        Trouble::Model(Box::new(error))
    }
}

impl From<OpenError> for Trouble {
    fn from(error: OpenError) -> Trouble {
        Trouble::Open(Box::new(error))
    }
}

impl Trouble {
    pub(super) fn of(self, case: &'static str, method: &'static str) -> ExperimentError {
        match self {
            Trouble::Device(source) => ExperimentError::Device {
                case,
                method,
                source,
            },
            Trouble::Model(source) => ExperimentError::Model {
                case,
                method,
                source,
            },
            Trouble::Open(source) => ExperimentError::Open {
                case,
                method,
                source,
            },
        }
    }
}
