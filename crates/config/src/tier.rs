//! The choices for a tier: the same keys in `[hybrid.tier]`, in `tanada volume set` and over the admin API.
//!
//! ```text
//! TOML table \
//! KEY=VALUE   > TierKeys: what was said, as texts -> apply to the choices in force -> Tier, or every mistake by key
//! JSON       /
//! ```
//!
//! Always true:
//! 1. What is not named stays as it is.
//! 2. Of a set of keys with a mistake in it nothing is applied.
//! 3. The keys of a tier, applied to any other tier, make that tier ([`TierKeys::of`]).

use std::fmt;

use base::{Bytes, Nanos, Span};
use hybrid::Tier;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::keys::Keys;
use super::values::read_span;
pub use super::written::{range, range_text, size_text, time_text};
use super::written::{window, window_text};

/// A value as it was written: a text, a number or a switch, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Said(pub String);

impl<'de> Deserialize<'de> for Said {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Said, D::Error> {
        struct One;
        impl Visitor<'_> for One {
            type Value = Said;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or a switch")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Said, E> {
                Ok(Said(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Said, E> {
                Ok(Said(number.to_string()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Said, E> {
                Ok(Said(number.to_string()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Said, E> {
                Ok(Said(number.to_string()))
            }
            fn visit_bool<E: de::Error>(self, switch: bool) -> Result<Said, E> {
                Ok(Said(switch.to_string()))
            }
        }
        from.deserialize_any(One)
    }
}

/// A list of texts; one text is a list with commas in it, and `none` is an empty one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed(pub Vec<String>);

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Listed, D::Error> {
        struct Several;
        impl<'de> Visitor<'de> for Several {
            type Value = Listed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Listed, E> {
                let parts = text.split(',').map(str::trim);
                let parts = parts.filter(|part| !part.is_empty() && *part != "none");
                Ok(Listed(parts.map(str::to_owned).collect()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Listed, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = all.next_element()? {
                    parts.push(part);
                }
                Ok(Listed(parts))
            }
        }
        from.deserialize_any(Several)
    }
}

macro_rules! keys {
    ($( $(#[$about:meta])* $key:ident: $kind:ident as $shown:ty, )*) => {
        /// What was said of a tier; what is absent stays.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct TierKeys {
            $(
                $(#[$about])*
                #[schema(value_type = Option<$shown>)]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: Option<$kind>,
            )*
        }

        impl TierKeys {
            /// Every key.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            /// What a table of a configuration says, and where it says so.
            fn take(table: &mut Keys<'_, '_>) -> (TierKeys, Vec<(&'static str, usize)>) {
                let mut said = TierKeys::default();
                let mut places = Vec::new();
                $(
                    if let Some(found) = table.take::<$kind>(stringify!($key)) {
                        places.push((stringify!($key), found.at));
                        said.$key = Some(found.value);
                    }
                )*
                (said, places)
            }
        }
    };
}

keys! {
    /// `on-the-fly`, `static` or `hystor`.
    policy: Said as String,
    /// One interval of statistics and decisions, such as `60s`.
    period: Said as String,
    /// Below so many requests a second on the volume an interval is ignored.
    iops_min: Said as f64,
    /// At most so many regions are considered in one interval.
    sub_luns_max: Said as u32,
    /// The hot regions take more than so many percent of all requests.
    share_min: Said as f64,
    /// So many intervals in a row a group is hot before it goes up.
    streak_min: Said as u32,
    /// After so many intervals in a row outside the hot ones a region goes down.
    timeout: Said as u32,
    /// What `static` and `hystor` look back on, such as `24h`, or `auto`.
    look_back: Said as String,
    /// What is counted and judged together: a power of two from `1MiB` to `1GiB`.
    region: Said as String,
    /// What is moved together: a power of two from `1MiB` to the region.
    extent: Said as String,
    /// `direct` or `published`.
    mover: Said as String,
    /// Does a region that is sent down stay until its room is needed?
    lazy_down: Said as bool,
    /// Do moves yield to users of the slow device?
    flow_control: Said as bool,
    /// Is something copied only if what it saves is expected to be more than the copy costs?
    break_even: Said as bool,
    /// May clean data be read from the slow device while the fast one is the busier?
    either: Said as bool,
    /// In mode `both`: the tier's share of the fast device in percent, or `auto`.
    share: Said as String,
    /// Ranges that always live on the fast device, each as `OFFSET+LENGTH`, such as `10GiB+2GiB`.
    pinned: Listed as Vec<String>,
    /// Ranges that never do.
    barred: Listed as Vec<String>,
    /// When moves may begin, each as `22:00-06:00` in UTC.
    windows: Listed as Vec<String>,
    /// Are the parameters learned from what happens?
    auto: Said as bool,
}

/// A mistake: which key, and what is wrong with it.
pub type Wrong = (&'static str, String);

/// The least period there is: decisions cost more than they gain below it.
const PERIOD_MIN: Nanos = Nanos::millis(100);
const PERIOD_MAX: Nanos = Nanos::secs(24 * 3600);

impl TierKeys {
    /// `tier` with what was said.
    ///
    /// # Errors
    /// Every mistake.
    pub fn apply(&self, tier: &Tier) -> Result<Tier, Vec<Wrong>> {
        let mut new = tier.clone();
        let mut wrong = Vec::new();
        macro_rules! set {
            ($($key:ident: $how:ident($to:expr, $parse:expr);)*) => {$(
                let done = $how(&self.$key, &mut $to, $parse);
                wrong.extend(done.err().map(|what| (stringify!($key), what)));
            )*};
        }
        set! {
            policy: read(new.policy, word);
            period: read(new.parameters.period, period);
            iops_min: read(new.parameters.iops_min, |text| number(text, "requests a second", 50));
            sub_luns_max: read(new.parameters.sub_luns_max, |text| number(text, "regions", 20));
            share_min: read(new.parameters.share_min, |text| number(text, "percent", 60));
            streak_min: read(new.parameters.streak_min, |text| number(text, "intervals", 3));
            timeout: read(new.parameters.timeout, |text| number(text, "intervals", 10));
            look_back: read(new.parameters.window, look_back);
            region: read(new.region, grain);
            extent: read(new.extent, |text| grain(text).map(Some));
            mover: read(new.mover, word);
            lazy_down: read(new.demotion.lazy, switch);
            flow_control: read(new.flow_control, switch);
            break_even: read(new.break_even, switch);
            either: read(new.either, switch);
            share: read(new.share, share);
            pinned: list(new.pinned, range);
            barred: list(new.barred, range);
            windows: list(new.windows, window);
            auto: read(new.auto, switch);
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        // A smaller region takes smaller extents with it, unless they were asked for.
        if self.extent.is_none() {
            new.extent = new.extent.map(|extent| extent.min(new.region));
        }
        together(&new)?;
        Ok(new)
    }

    /// The keys that make `tier` of any other one.
    pub fn of(tier: &Tier) -> TierKeys {
        let said = |value: &dyn fmt::Display| Some(Said(value.to_string()));
        let spans =
            |spans: &[Span]| Some(Listed(spans.iter().map(|span| range_text(*span)).collect()));
        let parameters = &tier.parameters;
        TierKeys {
            policy: said(&tier.policy),
            period: said(&time_text(parameters.period)),
            iops_min: said(&parameters.iops_min),
            sub_luns_max: said(&parameters.sub_luns_max),
            share_min: said(&parameters.share_min),
            streak_min: said(&parameters.streak_min),
            timeout: said(&parameters.timeout),
            look_back: said(&parameters.window.map_or("auto".to_owned(), time_text)),
            region: said(&size_text(tier.region)),
            extent: tier.extent.map(|extent| Said(size_text(extent))),
            mover: said(&tier.mover),
            lazy_down: said(&tier.demotion.lazy),
            flow_control: said(&tier.flow_control),
            break_even: said(&tier.break_even),
            either: said(&tier.either),
            share: said(
                &tier
                    .share
                    .map_or("auto".to_owned(), |share| share.to_string()),
            ),
            pinned: spans(&tier.pinned),
            barred: spans(&tier.barred),
            windows: Some(Listed(
                tier.windows
                    .iter()
                    .map(|window| window_text(*window))
                    .collect(),
            )),
            auto: said(&tier.auto),
        }
    }
}

/// What the choices must be to each other.
fn together(tier: &Tier) -> Result<(), Vec<Wrong>> {
    let mut wrong = Vec::new();
    if let Err(error) = tier.parameters.check() {
        let text = error.to_string();
        // The sentence begins with the parameter's name; one of them is called otherwise here.
        let key = TierKeys::KEYS
            .iter()
            .find(|key| text.starts_with(&format!("{key} ")));
        let (key, text) = match key {
            Some(key) => (*key, text),
            None => ("look_back", text.replacen("window is", "look_back is", 1)),
        };
        wrong.push((key, text));
    }
    if let Some(extent) = tier.extent.filter(|extent| *extent > tier.region) {
        let what = format!(
            "{extent} is more than a region of {}; what is moved together is judged together",
            tier.region
        );
        wrong.push(("extent", what));
    }
    let both = tier.pinned.iter().find_map(|pinned| {
        tier.barred
            .iter()
            .find(|barred| barred.overlaps(*pinned))
            .map(|barred| (pinned, barred))
    });
    if let Some((pinned, barred)) = both {
        let what = format!(
            "{} overlaps {}, which is pinned to the fast device; a range is one or the other",
            range_text(*barred),
            range_text(*pinned)
        );
        wrong.push(("barred", what));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong),
    }
}

/// Reads the table `tier` of a hybrid; complains about every mistake in it.
pub fn read_tier(hybrid: &mut Keys<'_, '_>) -> Tier {
    let usual = Tier::default();
    let Some(mut table) = hybrid.table("tier") else {
        return usual;
    };
    let (said, places) = TierKeys::take(&mut table);
    let tier = said.apply(&usual).unwrap_or_else(|wrong| {
        for (key, what) in wrong {
            match places.iter().find(|(name, _)| *name == key) {
                Some((_, at)) => table.complain_at(*at, key, what),
                None => table.complain(key, what),
            }
        }
        usual
    });
    table.finish();
    tier
}

fn read<T>(
    said: &Option<Said>,
    to: &mut T,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    if let Some(Said(text)) = said {
        *to = parse(text.trim())?;
    }
    Ok(())
}

fn list<T>(
    said: &Option<Listed>,
    to: &mut Vec<T>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    if let Some(Listed(texts)) = said {
        *to = texts
            .iter()
            .map(|text| parse(text.trim()))
            .collect::<Result<_, _>>()?;
    }
    Ok(())
}

fn word<T: std::str::FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn number<T: std::str::FromStr>(text: &str, of: &str, such_as: u32) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is no number of {of}; write such as {such_as}"))
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" => Ok(true),
        "false" | "off" => Ok(false),
        other => Err(format!("'{other}' is neither true nor false")),
    }
}

fn period(text: &str) -> Result<Nanos, String> {
    let period = read_span(text)?;
    match (PERIOD_MIN..=PERIOD_MAX).contains(&period) {
        true => Ok(period),
        false => Err(format!(
            "{period} is not from {PERIOD_MIN} to 24h; write such as \"60s\""
        )),
    }
}

fn look_back(text: &str) -> Result<Option<Nanos>, String> {
    match text {
        "auto" => Ok(None),
        text => read_span(text)
            .map(Some)
            .map_err(|what| format!("{what}, or \"auto\"")),
    }
}

fn grain(text: &str) -> Result<Bytes, String> {
    let size: Bytes = word(text)?;
    match size.0.is_power_of_two() && (Bytes::mib(1)..=Bytes::gib(1)).contains(&size) {
        true => Ok(size),
        false => Err(format!("{size} is not a power of two from 1 MiB to 1 GiB")),
    }
}

fn share(text: &str) -> Result<Option<u8>, String> {
    match (text, text.parse::<u8>()) {
        ("auto", _) => Ok(None),
        (_, Ok(percent)) if (1..=99).contains(&percent) => Ok(Some(percent)),
        _ => Err(format!(
            "'{text}' is no share of the fast device; write 1 to 99 (percent), or \"auto\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate as config;

    const HYBRID: &str = "[[device]]\nname = \"slow\"\nmemory = true\nsize = \"64MiB\"\n\
        [[device]]\nname = \"fast\"\nmemory = true\nsize = \"16MiB\"\n\
        [[hybrid]]\nname = \"vol\"\nslow = \"slow\"\nfast = \"fast\"\n";

    fn configured(rest: &str) -> Result<hybrid::Settings, Vec<String>> {
        let read = config::read(&format!("{HYBRID}{rest}"), "test", None);
        read.map(|config| config.hybrids[0].settings.clone())
            .map_err(|error| error.mistakes.iter().map(|m| m.to_string()).collect())
    }

    #[test]
    fn every_key_of_a_tier_arrives() {
        let settings = configured(
            "mode = \"both\"\n[hybrid.tier]\npolicy = \"static\"\nperiod = \"10s\"\niops_min = 12.5\n\
             sub_luns_max = 7\nshare_min = 55\nstreak_min = 2\ntimeout = 4\nlook_back = \"1h\"\n\
             region = \"8MiB\"\nextent = 2097152\nmover = \"published\"\nlazy_down = false\nflow_control = false\n\
             break_even = false\neither = false\nshare = 30\npinned = [\"0+2MiB\", \"8MiB+4KiB\"]\n\
             barred = \"32MiB+1MiB\"\nwindows = [\"22:00-06:00\", \"12:30-00:00\"]\nauto = true\n",
        )
        .unwrap();
        assert_eq!(settings.mode, hybrid::Mode::Both);
        let hours = |h: u64| Nanos::secs(h * 3600);
        let expected = Tier {
            policy: policy::tier::Kind::Static,
            parameters: policy::tier::Parameters {
                period: Nanos::secs(10),
                iops_min: 12.5,
                sub_luns_max: 7,
                share_min: 55.0,
                streak_min: 2,
                timeout: 4,
                window: Some(hours(1)),
            },
            region: Bytes::mib(8),
            extent: Some(Bytes::mib(2)),
            mover: hybrid::Mover::Published,
            demotion: hybrid::Demotion {
                lazy: false,
                ..Default::default()
            },
            flow_control: false,
            break_even: false,
            either: false,
            share: Some(30),
            pinned: vec![Span::bytes(0, 2 << 20), Span::bytes(8 << 20, 4096)],
            barred: vec![Span::bytes(32 << 20, 1 << 20)],
            windows: vec![(hours(22), hours(6)), (Nanos::secs(45_000), hours(0))],
            auto: true,
            ..Tier::default()
        };
        assert_eq!(settings.tier, expected);
        // What makes this tier of any other is read back as it is.
        let again = TierKeys::of(&expected).apply(&Tier::default());
        assert_eq!(again, Ok(expected));
    }

    #[test]
    fn without_a_table_a_tier_is_the_usual_one_and_waits_for_a_mode() {
        let settings = configured("mode = \"tier\"\n").unwrap();
        assert_eq!(
            (settings.mode, settings.tier),
            (hybrid::Mode::Tier, Tier::default())
        );
        // Of no use in mode cache, and no mistake: the mode can be changed while it runs.
        let settings = configured("mode = \"cache\"\n[hybrid.tier]\nregion = \"1MiB\"\n").unwrap();
        assert_eq!(settings.mode, hybrid::Mode::Cache);
        assert_eq!(
            (settings.tier.region, settings.tier.extent()),
            (Bytes::mib(1), Bytes::mib(1))
        );
    }

    /// (what the table says, what is said about it)
    const REFUSALS: &[(&str, &str)] = &[
        (
            "policy = \"otf\"",
            "line 15: [[hybrid]] \"vol\" tier policy: 'otf' is no tiering rule",
        ),
        ("period = \"10\"", "tier period: '10' is not a span of time"),
        ("period = \"1ms\"", "tier period: 1.00 ms is not from"),
        (
            "iops_min = -1",
            "tier iops_min: iops_min is -1, which is no number of requests",
        ),
        (
            "iops_min = \"many\"",
            "tier iops_min: 'many' is no number of requests a second",
        ),
        ("sub_luns_max = 0", "tier sub_luns_max: sub_luns_max is 0"),
        (
            "sub_luns_max = 1.5",
            "tier sub_luns_max: '1.5' is no number of regions",
        ),
        ("share_min = 101", "tier share_min: share_min is 101"),
        ("streak_min = 0", "tier streak_min: streak_min is 0"),
        ("timeout = 0", "tier timeout: timeout is 0"),
        (
            "look_back = \"1s\"",
            "tier look_back: look_back is 1.00 s, shorter than one period",
        ),
        (
            "region = \"3MiB\"",
            "tier region: 3.0 MiB is not a power of two",
        ),
        (
            "region = \"2GiB\"",
            "tier region: 2.0 GiB is not a power of two",
        ),
        (
            "region = \"1MiB\"\nextent = \"2MiB\"",
            "tier extent: 2.0 MiB is more than a region",
        ),
        ("mover = \"fast\"", "tier mover: 'fast' is not a mover"),
        (
            "flow_control = \"perhaps\"",
            "tier flow_control: 'perhaps' is neither true nor false",
        ),
        (
            "share = 100",
            "tier share: '100' is no share of the fast device",
        ),
        (
            "pinned = \"10GiB\"",
            "tier pinned: '10GiB' is no range; write OFFSET+LENGTH",
        ),
        (
            "pinned = \"0+0\"",
            "tier pinned: '0+0' is no range: it is empty",
        ),
        (
            "pinned = \"100+4096\"",
            "tier pinned: '100+4096' is no range: both are multiples",
        ),
        (
            "pinned = \"0+8KiB\"\nbarred = \"4KiB+8KiB\"",
            "tier barred: 4KiB+8KiB overlaps 0+8KiB",
        ),
        (
            "windows = \"22-6\"",
            "tier windows: '22-6' is no time of the day",
        ),
        (
            "windows = \"22:00-24:00\"",
            "tier windows: '22:00-24:00' is no time of the day",
        ),
        (
            "windows = \"06:00-06:00\"",
            "tier windows: '06:00-06:00' holds no time",
        ),
        (
            "copy_back = \"nothing\"",
            "tier copy_back: there is no such key",
        ),
        ("buffer = \"memory\"", "tier buffer: there is no such key"),
        (
            "perod = \"10s\"",
            "tier perod: there is no such key; did you mean period?",
        ),
        ("pinned = 5", "tier pinned: "),
    ];

    #[test]
    fn what_makes_no_sense_for_a_tier_is_refused_by_its_key() {
        for (added, said) in REFUSALS {
            let found = configured(&format!("mode = \"tier\"\n[hybrid.tier]\n{added}\n"));
            let found = found.expect_err(added);
            assert_eq!(found.len(), 1, "{added}\n{found:#?}");
            assert!(
                found[0].contains(said),
                "{added}\nsaid {found:#?}\nexpected {said}"
            );
        }
    }

    #[test]
    fn what_is_not_named_stays_and_a_mistake_changes_nothing() {
        let said = |json: &str| serde_json::from_str::<TierKeys>(json).unwrap();
        let old = Tier {
            auto: true,
            share: Some(20),
            ..Tier::default()
        };
        let new = said(r#"{"period": "5s", "share": "auto", "pinned": "0+1MiB, 2MiB+1MiB"}"#);
        let new = new.apply(&old).unwrap();
        assert_eq!((new.auto, new.share, new.pinned.len()), (true, None, 2));
        assert_eq!(new.parameters.period, Nanos::secs(5));
        let none = said(r#"{"pinned": "none", "windows": []}"#)
            .apply(&new)
            .unwrap();
        assert_eq!(none.pinned, []);
        let wrong = said(r#"{"period": "5s", "timeout": 0, "share": "much", "mover": "x"}"#);
        let keys: Vec<&str> = wrong
            .apply(&old)
            .unwrap_err()
            .iter()
            .map(|(key, _)| *key)
            .collect();
        assert_eq!(keys, ["mover", "share"]);
        assert!(serde_json::from_str::<TierKeys>(r#"{"buffer": "memory"}"#).is_err());
    }

    proptest::proptest! {
        #[test]
        fn the_keys_of_a_tier_make_it_again(
            numbers in (1u64..86_400_000, 0f64..1e6, 1u32..1000, 0f64..100.0, 1u32..100, 1u32..100),
            grains in (0u32..=10, 0u32..=10),
            choices in proptest::collection::vec(proptest::bool::ANY, 6),
            share in proptest::option::of(1u8..100),
            places in proptest::collection::vec((0u64..1 << 30, 1u64..1 << 20), 0..4),
            times in proptest::collection::vec((0u64..1440, 0u64..1440), 0..4),
            rule in 0usize..3,
        ) {
            let (period, iops_min, sub_luns_max, share_min, streak_min, timeout) = numbers;
            let region = grains.0.max(grains.1);
            let tier = Tier {
                policy: policy::tier::Kind::ALL[rule],
                parameters: policy::tier::Parameters {
                    period: Nanos::millis(period.max(100)),
                    iops_min, sub_luns_max, share_min, streak_min, timeout,
                    window: None,
                },
                region: Bytes::mib(1 << region),
                extent: Some(Bytes::mib(1 << grains.0.min(grains.1))),
                mover: hybrid::Mover::ALL[usize::from(choices[0])],
                demotion: hybrid::Demotion { lazy: choices[5], ..Default::default() },
                flow_control: choices[1],
                break_even: choices[2],
                either: choices[3],
                auto: choices[4],
                share,
                pinned: places.iter().map(|(at, len)| Span::bytes(at * 4096, len * 4096)).collect(),
                windows: times.iter().filter(|(from, to)| from != to)
                    .map(|(from, to)| (Nanos::secs(from * 60), Nanos::secs(to * 60))).collect(),
                ..Tier::default()
            };
            let keys = TierKeys::of(&tier);
            assert_eq!(keys.apply(&Tier::default()), Ok(tier.clone()));
            let table = toml::to_string(&keys).unwrap();
            let read = configured(&format!("mode = \"both\"\n[hybrid.tier]\n{table}")).unwrap();
            assert_eq!(read.tier, tier);
        }
    }
}
