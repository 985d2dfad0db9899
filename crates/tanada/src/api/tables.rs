//! Types of the API whose parts are needed one by one, each written down once.
//!
//! - `counters!` a line is a key of `/v1`, taken from the engine's field of the same name or that in brackets, and, where
//!   it says so, a metric with its help.
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
        pub struct $name:ident from $engine:ty {
            $($(#[$about:meta])* pub $field:ident: $type:ty $([$($from:tt)+])? $(= $kind:ident $metric:literal $help:literal)?,)*
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

        impl From<&$engine> for $name {
            fn from(of: &$engine) -> $name {
                $name { $($field: $crate::api::tables::taken!(of $field $($($from)+)?),)* }
            }
        }
    };
}

/// What a key is in the engine: the field of its name, or what stands in brackets behind its type.
macro_rules! taken {
    ($of:ident $field:ident) => {
        $of.$field.into()
    };
    ($of:ident $field:ident $($from:tt)+) => {
        $of.$($from)+.into()
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

pub(super) use {counters, keys, taken};
