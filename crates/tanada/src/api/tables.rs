//! Types of the API whose parts are needed one by one, each written down once.
//!
//! - `counters!` a line is a key of `/v1` and, where it says so, a metric with its help.
//! - `keys!` a line is an optional key, and in the list of all keys.

/// Does a metric go up and down, or only up?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Up and down.
    Gauge,
    /// Only up.
    Counter,
}

/// A metric of a `T`.
pub struct Metric<T> {
    pub kind: Kind,
    /// Without what the names of all such metrics begin with.
    pub name: &'static str,
    pub help: &'static str,
    pub value: fn(&T) -> u64,
}

macro_rules! counters {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$about:meta])* pub $field:ident: $type:ty $(= $kind:ident $metric:literal $help:literal)?,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl $name {
            /// What of it is a metric, in the order of the keys.
            pub const METRICS: &[$crate::api::tables::Metric<$name>] = &[
                $($($crate::api::tables::Metric {
                    kind: $crate::api::tables::Kind::$kind,
                    name: $metric,
                    help: $help,
                    value: |of| u64::from(of.$field),
                },)?)*
            ];
        }
    };
}

macro_rules! keys {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$about:meta])* $key:ident: $type:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$about])* #[serde(skip_serializing_if = "Option::is_none")] pub $key: Option<$type>,)*
        }

        impl $name {
            /// All keys.
            pub const KEYS: &[&'static str] = &[$(stringify!($key),)*];
        }
    };
}

pub(super) use {counters, keys};
