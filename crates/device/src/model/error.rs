//! Why a model is not to be had.

use base::Bytes;

/// Why a model is not to be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Neither a model of the catalogue nor a file.
    #[error(
        "no model '{asked}': the catalogue has {known}; or give the path of a .toml file of your own"
    )]
    Unknown {
        /// What was asked for.
        asked: String,
        /// The names there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read the model file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The text is not TOML, or a key is missing, unknown or of the wrong type.
    #[error("the model {model} cannot be read: {why}")]
    Parse {
        /// The model or file.
        model: String,
        /// Which key, and what is wrong with it.
        why: String,
    },
    /// A value that no device could have.
    #[error("the model {model} has {key} = {value}: {why}")]
    Value {
        /// The model or file.
        model: String,
        /// The key, with its table.
        key: String,
        /// The value found.
        value: String,
        /// What it must be.
        why: String,
    },
    /// The size asked for is none the model can have.
    #[error("the model {model} cannot hold {asked}: {why}")]
    Size {
        /// The model.
        model: String,
        /// What was asked for.
        asked: Bytes,
        /// What it can hold.
        why: String,
    },
}
