//! Where on the volume does a request of the trace go?
//!
//! ```text
//! trace, once through -> Survey: requests, span, how far each device reaches
//! request -> which device, from where on -> does it fit? -> sectors of the volume | left out | refused
//! ```
//!
//! Choice: a trace of several devices is laid out on one volume, one device after the other in the order of
//! their numbers, each from a whole MiB on; or one of them is chosen. Without a survey only traces of one
//! device can be laid out.

use std::collections::BTreeMap;
use std::str::FromStr;

use base::{Bytes, Nanos, SECTOR, Span};
use serde::Serialize;

use trace::{Op, Request, Requests, TraceError};

/// Devices of one trace at most; one with more is no block trace.
const DEVICES_MAX: usize = 65_536;
const MIB: u64 = 1 << 20;

/// What to do with a request that reaches beyond the end of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// End with an error that says how large the volume would have to be.
    #[default]
    Refuse,
    /// Give the volume's slow device the size that is needed, before the run (see `Stack::grow`).
    Grow,
    /// Begin again at the volume's start, as often as it takes.
    Wrap,
    /// Shrink all addresses alike so that the whole trace fits.
    Scale,
    /// Leave it out and count it.
    Drop,
}

impl Fit {
    /// All choices, for listings.
    pub const ALL: [Fit; 5] = [Fit::Refuse, Fit::Grow, Fit::Wrap, Fit::Scale, Fit::Drop];

    /// The choice as it is written.
    pub fn word(self) -> &'static str {
        match self {
            Fit::Refuse => "refuse",
            Fit::Grow => "grow",
            Fit::Wrap => "wrap",
            Fit::Scale => "scale",
            Fit::Drop => "drop",
        }
    }
}

impl FromStr for Fit {
    type Err = String;
    fn from_str(text: &str) -> Result<Fit, String> {
        Fit::ALL
            .into_iter()
            .find(|fit| fit.word() == text)
            .ok_or_else(|| {
                let words = Fit::ALL.map(Fit::word).join(", ");
                format!("'{text}' is no way to fit a trace; choose one of {words}")
            })
    }
}

/// Why a request has no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// It reaches beyond the end.
    #[error(
        "the trace reaches up to byte {reaches} and the volume holds {volume}: give its slow device a size of at \
         least {needed} bytes ({}), or choose --fit grow (the same without editing), wrap, scale or drop",
        Bytes(*needed)
    )]
    Beyond {
        /// The first byte behind the request.
        reaches: u64,
        /// The volume's size.
        volume: Bytes,
        /// The least size that would do.
        needed: u64,
    },
    /// It is of another device than the ones before.
    #[error(
        "the trace has requests of device {other} beside those of device {first}; choose one, or survey the trace \
         first, so that it is known how much room each needs"
    )]
    OtherDevice {
        /// The device seen first.
        first: u32,
        /// Another one.
        other: u32,
    },
    /// The device chosen is not in the trace.
    #[error("the trace has no request of device {asked}; it has {known}")]
    NoDevice {
        /// The device asked for.
        asked: u32,
        /// What there is.
        known: String,
    },
    /// Too many devices.
    #[error("the trace has requests of more than {DEVICES_MAX} devices; choose one with --device")]
    TooMany,
    /// Nothing fits.
    #[error(
        "the devices of the trace together reach beyond 2^63 bytes; choose one with --device, or --fit drop"
    )]
    TooLarge,
}

/// One device of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Extent {
    /// Requests.
    pub requests: u64,
    /// The first byte behind the last one used.
    pub end: u64,
}

/// A trace, once through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// Requests, of the devices looked at.
    pub requests: u64,
    /// From the first to the last of them.
    pub span: Nanos,
    /// How far each device reaches.
    pub devices: BTreeMap<u32, Extent>,
}

impl Survey {
    /// Reads `requests` to their end, or the first `limit` of them; of device `only`, if one is named.
    /// `progress` hears now and then how many were read.
    ///
    /// # Errors
    /// [`TraceError`]; or, within the answer, [`LayoutError::TooMany`] and [`LayoutError::NoDevice`].
    pub fn of(
        requests: &mut dyn Requests,
        only: Option<u32>,
        limit: Option<u64>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Result<Survey, LayoutError>, TraceError> {
        let limit = limit.unwrap_or(u64::MAX);
        let mut survey = Survey::default();
        let mut others = BTreeMap::new();
        let mut batch = Vec::new();
        let mut taken = 0;
        let mut first: Option<Nanos> = None;
        while taken < limit && requests.next_batch(&mut batch)? {
            for request in &batch {
                let chosen = only.is_none_or(|only| only == request.device);
                if taken == limit {
                    break;
                }
                taken += 1;
                let devices = if chosen {
                    &mut survey.devices
                } else {
                    &mut others
                };
                if devices.len() == DEVICES_MAX && !devices.contains_key(&request.device) {
                    if chosen {
                        return Ok(Err(LayoutError::TooMany));
                    }
                    continue;
                }
                let extent = devices.entry(request.device).or_default();
                extent.requests += 1;
                extent.end = extent.end.max(end_of(request));
                if chosen {
                    survey.requests += 1;
                    survey.span = request.at.saturating_sub(*first.get_or_insert(request.at));
                }
            }
            progress(taken);
        }
        if let Some(asked) = only
            && survey.requests == 0
        {
            let known: Vec<String> = others.keys().take(20).map(u32::to_string).collect();
            let known = match known.len() {
                0 => "none".to_owned(),
                _ => known.join(", "),
            };
            return Ok(Err(LayoutError::NoDevice { asked, known }));
        }
        Ok(Ok(survey))
    }
}

fn end_of(request: &Request) -> u64 {
    match request.op {
        Op::Flush => 0,
        _ => request.offset.0.saturating_add(request.size.0),
    }
}

/// Where requests go; see the module's head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Only this device of the trace.
    only: Option<u32>,
    /// Where each device begins; empty: there was no survey.
    begins: BTreeMap<u32, u64>,
    /// The first byte behind all of them.
    extent: u64,
    /// What does not fit.
    fit: Fit,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// It goes to this span.
    At(Span),
    /// It needs no place.
    Nowhere,
    /// It is left out.
    LeftOut(Reason),
}

/// Why a request is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Beyond,
    OtherDevice,
    NoBytes,
}

impl Layout {
    /// For a trace of one device (or only device `only` of it) whose extent is not known.
    pub fn unsurveyed(only: Option<u32>, fit: Fit) -> Layout {
        Layout {
            only,
            fit,
            ..Layout::default()
        }
    }

    /// For the trace that `survey` was made of, with the same `only`.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`].
    pub fn of(survey: &Survey, only: Option<u32>, fit: Fit) -> Result<Layout, LayoutError> {
        let mut layout = Layout::unsurveyed(only, fit);
        for (device, extent) in &survey.devices {
            let begin = layout
                .extent
                .checked_next_multiple_of(MIB)
                .ok_or(LayoutError::TooLarge)?;
            layout.begins.insert(*device, begin);
            layout.extent = begin.saturating_add(extent.end);
            // One device alone may reach as far as it likes: what becomes of that is a matter of the fit.
            if layout.extent > 1 << 63 && survey.devices.len() > 1 {
                return Err(LayoutError::TooLarge);
            }
        }
        Ok(layout)
    }

    /// What to do with what does not fit.
    pub fn fit(&self) -> Fit {
        self.fit
    }

    /// How much room the trace needs; zero where there was no survey.
    pub fn needed(&self) -> Bytes {
        Bytes(
            self.extent
                .checked_next_multiple_of(SECTOR)
                .unwrap_or(self.extent),
        )
    }

    /// Refuses, before anything is done, what would be refused on the way.
    pub(super) fn check(&self, volume: Bytes) -> Result<(), LayoutError> {
        match self.fit {
            Fit::Refuse | Fit::Grow if self.extent > volume.0 => Err(LayoutError::Beyond {
                reaches: self.extent,
                volume,
                needed: self.needed().0.max(self.extent),
            }),
            _ => Ok(()),
        }
    }

    /// Where `request` goes on a volume of `volume` bytes, a multiple of 512.
    pub(super) fn place(
        &mut self,
        request: &Request,
        volume: Bytes,
    ) -> Result<Placed, LayoutError> {
        if self.only.is_some_and(|only| only != request.device) {
            return Ok(Placed::LeftOut(Reason::OtherDevice));
        }
        if request.op == Op::Flush {
            return Ok(Placed::Nowhere);
        }
        if request.size == Bytes(0) {
            return Ok(Placed::LeftOut(Reason::NoBytes));
        }
        let begin = match self.begins.get(&request.device) {
            Some(begin) => *begin,
            // Without a survey: the first one seen is the only one.
            None => match self.begins.first_key_value() {
                None => {
                    self.begins.insert(request.device, 0);
                    0
                }
                Some((first, _)) => {
                    return Err(LayoutError::OtherDevice {
                        first: *first,
                        other: request.device,
                    });
                }
            },
        };
        // Whole sectors, in 128 bits: hostile addresses end far beyond, not at zero again.
        let sector = u128::from(SECTOR);
        let from = (u128::from(begin) + u128::from(request.offset.0)) / sector * sector;
        let end = u128::from(begin) + u128::from(request.offset.0) + u128::from(request.size.0);
        let end = end.next_multiple_of(sector);
        let len = end - from;
        let size = u128::from(volume.0);
        let at = |from: u128, len: u128| Ok(Placed::At(Span::bytes(from as u64, len as u64)));
        let beyond = || LayoutError::Beyond {
            reaches: u64::try_from(end).unwrap_or(u64::MAX),
            volume,
            needed: u64::try_from(end).unwrap_or(u64::MAX).max(self.extent),
        };
        let extent = u128::from(self.extent);
        match self.fit {
            Fit::Scale if extent > size && len <= size => {
                let page = base::PAGE as u128;
                let scaled = from * size / extent / page * page;
                at(scaled.min((size - len) / sector * sector), len)
            }
            _ if end <= size => at(from, len),
            Fit::Drop => Ok(Placed::LeftOut(Reason::Beyond)),
            Fit::Wrap if len <= size => at((from % size).min(size - len), len),
            _ => Err(beyond()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(device: u32, offset: u64, size: u64) -> Request {
        Request {
            at: Nanos(0),
            offset: Bytes(offset),
            size: Bytes(size),
            device,
            op: Op::Read,
        }
    }

    struct Given(Vec<Request>);
    impl Requests for Given {
        fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<bool, TraceError> {
            *batch = std::mem::take(&mut self.0);
            Ok(!batch.is_empty())
        }
    }

    fn survey(requests: &[Request], only: Option<u32>) -> Result<Survey, LayoutError> {
        Survey::of(&mut Given(requests.to_vec()), only, None, &mut |_| {}).unwrap()
    }

    fn at(from: u64, len: u64) -> Result<Placed, LayoutError> {
        Ok(Placed::At(Span::bytes(from, len)))
    }

    const VOLUME: Bytes = Bytes::mib(4);

    #[test]
    fn devices_lie_one_after_the_other_each_from_a_whole_mebibyte_on() {
        let trace = [
            request(7, 4096, 4096),
            request(2, MIB, 512),
            request(7, 0, 512),
        ];
        let survey = survey(&trace, None).unwrap();
        assert_eq!(survey.requests, 3);
        let mut layout = Layout::of(&survey, None, Fit::Refuse).unwrap();
        assert_eq!(layout.place(&trace[1], VOLUME), at(MIB, 512));
        assert_eq!(layout.place(&trace[0], VOLUME), at(2 * MIB + 4096, 4096));
        assert_eq!(layout.needed(), Bytes(2 * MIB + 8192));
        assert_eq!(layout.check(VOLUME), Ok(()));
    }

    #[test]
    fn one_device_can_be_chosen() {
        let trace = [request(7, 4096, 4096), request(2, MIB, 512)];
        let chosen = survey(&trace, Some(7)).unwrap();
        assert_eq!(chosen.requests, 1);
        let mut layout = Layout::of(&chosen, Some(7), Fit::Refuse).unwrap();
        assert_eq!(layout.place(&trace[0], VOLUME), at(4096, 4096));
        let other = layout.place(&trace[1], VOLUME);
        assert_eq!(other, Ok(Placed::LeftOut(Reason::OtherDevice)));
        let refusal = survey(&trace, Some(1)).unwrap_err().to_string();
        assert_eq!(refusal, "the trace has no request of device 1; it has 2, 7");
    }

    #[test]
    fn without_a_survey_a_second_device_is_refused() {
        let mut layout = Layout::default();
        assert_eq!(layout.place(&request(3, 0, 512), VOLUME), at(0, 512));
        let refusal = layout.place(&request(4, 0, 512), VOLUME).unwrap_err();
        assert!(
            refusal
                .to_string()
                .contains("device 4 beside those of device 3")
        );
    }

    #[test]
    fn what_reaches_beyond_the_end_is_refused_wrapped_scaled_or_left_out() {
        let far = request(0, 9 * MIB, 8192);
        let seen = survey(&[request(0, 0, 512), far], None).unwrap();
        let place = |fit| {
            let mut layout = Layout::of(&seen, None, fit).unwrap();
            layout.place(&far, VOLUME)
        };
        assert_eq!(place(Fit::Wrap), at(MIB, 8192));
        assert_eq!(place(Fit::Scale), at(VOLUME.0 - 8192, 8192));
        assert_eq!(place(Fit::Drop), Ok(Placed::LeftOut(Reason::Beyond)));
        let refusal = place(Fit::Refuse).unwrap_err();
        assert_eq!(
            Layout::of(&seen, None, Fit::Refuse).unwrap().check(VOLUME),
            Err(refusal.clone())
        );
        assert_eq!(
            refusal.to_string(),
            "the trace reaches up to byte 9445376 and the volume holds 4.0 MiB: give its slow device a size of at \
             least 9445376 bytes (9.0 MiB), or choose --fit grow (the same without editing), wrap, scale or drop"
        );
    }

    #[test]
    fn hostile_addresses_find_no_place() {
        for hostile in [
            request(0, u64::MAX, u64::MAX),
            request(0, 1 << 63, 4096),
            request(0, 0, u64::MAX),
        ] {
            let seen = survey(&[hostile], None).unwrap();
            for fit in Fit::ALL {
                let placed = Layout::of(&seen, None, fit)
                    .and_then(|mut layout| layout.place(&hostile, VOLUME));
                match placed {
                    Ok(Placed::At(span)) => {
                        assert!(span.end().byte() <= VOLUME.0, "{fit:?} {span}")
                    }
                    Ok(Placed::LeftOut(reason)) => assert_eq!(reason, Reason::Beyond),
                    Ok(Placed::Nowhere) => panic!("a read needs a place"),
                    Err(_) => assert_ne!(fit, Fit::Drop),
                }
            }
        }
    }

    #[test]
    fn odd_addresses_take_the_sectors_they_touch() {
        let mut layout = Layout::default();
        assert_eq!(layout.place(&request(0, 511, 2), VOLUME), at(0, 1024));
        assert_eq!(layout.place(&request(0, 1000, 24), VOLUME), at(512, 512));
        let nothing = layout.place(&request(0, 0, 0), VOLUME);
        assert_eq!(nothing, Ok(Placed::LeftOut(Reason::NoBytes)));
    }
}
