//! What does a client want, and may it have it? One option in, replies out, and the next step.
//!
//! ```text
//! Options    -> Options       any answered option
//! Options    -> StartTls      STARTTLS agreed     -> Options (all earlier agreements forgotten)
//! Options    -> Enter(export) GO or EXPORT_NAME   -> transmission
//! Options    -> Close         ABORT, or what cannot be answered
//! ```
//!
//! Pure: no stream, no clock, no device; `server` carries the steps out, the fuzzer feeds it at will.
//!
//! Always true:
//! 1. Every option but a granted or refused `EXPORT_NAME` ends with exactly one final reply.
//! 2. Before TLS on a server that requires it, no answer says anything about any export.
//! 3. `base:allocation` holds for the export it was selected for, and for no other.

use base::Bytes;
use device::Info;

use super::proto::{
    self, ALLOCATION, ALLOCATION_ID, Fields, can, handshake, info, opt, rep, shortened,
};

/// Smallest block: one sector.
pub const BLOCK_MIN: u32 = 512;
/// Replies to one `LIST` stay below this many bytes; what does not fit is left out.
const LIST_BYTES_MAX: usize = 1 << 20;

/// An export as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Its canonical name.
    pub name: String,
    /// A description for people; empty if there is none.
    pub description: String,
    /// Its size.
    pub size: Bytes,
    /// The block it likes best.
    pub block: u32,
    /// Longest read or write.
    pub payload_max: u32,
    /// Transmission flags, without `DF`.
    pub flags: u16,
}

impl Offer {
    /// What a device can promise a client.
    pub fn of_device(
        name: &str,
        description: &str,
        device: &Info,
        read_only: bool,
        payload_max: u32,
    ) -> Offer {
        let mut flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::MULTI_CONN | can::CACHE;
        if device.rotational {
            flags |= can::ROTATIONAL;
        }
        if read_only || device.read_only {
            flags |= can::READ_ONLY;
        } else {
            flags |= can::WRITE_ZEROES | can::FAST_ZERO;
            if device.discards {
                flags |= can::TRIM;
            }
        }
        let block = device.physical_block.0.clamp(4096, u64::from(payload_max)) as u32;
        Offer {
            name: name.to_owned(),
            description: description.to_owned(),
            size: device.size,
            block: block.next_power_of_two().min(payload_max),
            payload_max,
            flags,
        }
    }
}

/// The exports on offer.
pub trait Catalogue {
    /// The export of that name; the empty name asks for the default one.
    fn find(&self, name: &str) -> Option<Offer>;
    /// Name and description of every export, in order.
    fn list(&self) -> Vec<(String, String)>;
    /// Is the server shutting down?
    fn closing(&self) -> bool {
        false
    }
    /// Why an export that should be there cannot be had now.
    fn why_not(&self, _name: &str) -> Option<String> {
        None
    }
}

/// What an option asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// No export.
    Nothing,
    /// All of them.
    List,
    /// The one of this name.
    Export(&'a str),
}

/// Where the connection stands with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsState {
    /// The server has no certificate.
    Unavailable,
    /// The client may start it.
    Offered,
    /// The client must start it before anything else.
    Required,
    /// Started.
    Active,
}

/// What was agreed on when transmission begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// The chosen export.
    pub offer: Offer,
    /// Replies are structured.
    pub structured: bool,
    /// `base:allocation` was selected for this export.
    pub allocation: bool,
}

impl Agreement {
    /// The transmission flags as announced.
    pub fn flags(&self) -> u16 {
        self.offer.flags | if self.structured { can::DF } else { 0 }
    }

    /// The ground the requests stand on.
    pub fn terms(&self) -> proto::Terms {
        proto::Terms {
            size: self.offer.size.0,
            flags: self.flags(),
            structured: self.structured,
            allocation: self.allocation,
            payload_max: self.offer.payload_max,
        }
    }
}

/// What comes next, once the replies are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next option.
    Continue,
    /// The TLS handshake.
    StartTls,
    /// Transmission.
    Enter(Box<Agreement>),
    /// Hang up; the reason is for the log.
    Close(&'static str),
}

/// The server's side of one negotiation.
#[derive(Debug, Clone)]
pub struct Negotiation {
    // Fixed once the client's flags are known.
    fixed: bool,
    no_zeroes: bool,
    // Per option.
    tls: TlsState,
    structured: bool,
    /// The export `base:allocation` was selected for, by canonical name.
    context_of: Option<String>,
}

/// A refusal of one option: type and sentence.
struct No(u32, String);

fn invalid(why: &str) -> No {
    No(rep::ERR_INVALID, why.to_owned())
}

impl Negotiation {
    /// After the greeting, with the client's flags.
    ///
    /// # Errors
    /// The sentence for the log if the flags are not ones the server announced: hang up.
    pub fn new(client_flags: u32, tls: TlsState) -> Result<Negotiation, &'static str> {
        let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        if client_flags & !known != 0 {
            return Err("the client set handshake flags that were not offered");
        }
        let has = |bit: u16| client_flags & u32::from(bit) != 0;
        Ok(Negotiation {
            fixed: has(handshake::FIXED_NEWSTYLE),
            no_zeroes: has(handshake::NO_ZEROES),
            tls,
            structured: false,
            context_of: None,
        })
    }

    /// TLS is up: what was agreed on in the clear is forgotten.
    pub fn tls_started(&mut self) {
        self.tls = TlsState::Active;
        self.structured = false;
        self.context_of = None;
    }

    /// What the answer to an option will be about, before it is given: what has to be opened first can be.
    /// Nothing is answered or done here.
    pub fn wanted<'a>(&self, option: u32, data: &'a [u8]) -> Wanted<'a> {
        if self.tls == TlsState::Required || (!self.fixed && option != opt::EXPORT_NAME) {
            return Wanted::Nothing;
        }
        let name = match option {
            opt::LIST if data.is_empty() => return Wanted::List,
            opt::EXPORT_NAME => proto::text(data),
            opt::INFO | opt::GO | opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => {
                Fields(data).string()
            }
            _ => None,
        };
        name.map_or(Wanted::Nothing, Wanted::Export)
    }

    /// An option whose data (`len` bytes) the server will not hold; the caller drops them unread.
    pub fn oversized(&mut self, option: u32, len: u32, out: &mut Vec<u8>) -> Step {
        if !self.fixed || option == opt::EXPORT_NAME {
            return Step::Close("the option is too long, and it cannot be refused");
        }
        let why = format!("the option's {len} bytes of data are more than this server takes");
        proto::put_option_reply(out, option, rep::ERR_TOO_BIG, why.as_bytes());
        Step::Continue
    }

    /// One option and its data; appends the replies to `out`.
    pub fn option(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &dyn Catalogue,
        out: &mut Vec<u8>,
    ) -> Step {
        if !self.fixed && option != opt::EXPORT_NAME {
            return Step::Close("a client without fixed newstyle may only send EXPORT_NAME");
        }
        if option == opt::ABORT {
            proto::put_option_reply(out, option, rep::ACK, &[]);
            return Step::Close("the client ended the negotiation");
        }
        if option == opt::EXPORT_NAME {
            return self.export_name(data, exports, out);
        }
        let replies_from = out.len();
        match self.answer(option, data, exports, out) {
            Ok(step) => step,
            Err(No(kind, why)) => {
                // A refusal is the only reply: nothing that was begun before it is sent.
                out.truncate(replies_from);
                proto::put_option_reply(out, option, kind, shortened(&why, 4096).as_bytes());
                Step::Continue
            }
        }
    }

    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &dyn Catalogue,
        out: &mut Vec<u8>,
    ) -> Result<Step, No> {
        if option == opt::STARTTLS {
            return self.start_tls(data, out);
        }
        if self.tls == TlsState::Required {
            return Err(No(
                rep::ERR_TLS_REQD,
                "start TLS first (STARTTLS)".to_owned(),
            ));
        }
        if exports.closing() {
            return Err(No(
                rep::ERR_SHUTDOWN,
                "the server is shutting down".to_owned(),
            ));
        }
        match option {
            opt::LIST => {
                if !data.is_empty() {
                    return Err(invalid("LIST takes no data"));
                }
                let from = out.len();
                for (name, description) in exports.list() {
                    if out.len() - from + name.len() + description.len() > LIST_BYTES_MAX {
                        break;
                    }
                    let mut reply = Vec::with_capacity(4 + name.len() + description.len());
                    proto::put_string(&mut reply, &name);
                    reply.extend(description.as_bytes());
                    proto::put_option_reply(out, option, rep::SERVER, &reply);
                }
            }
            opt::STRUCTURED_REPLY => {
                if !data.is_empty() {
                    return Err(invalid("STRUCTURED_REPLY takes no data"));
                }
                self.structured = true;
            }
            opt::INFO | opt::GO => return self.describe(option, data, exports, out),
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => {
                self.contexts(option, data, exports, out)?;
            }
            _ => {
                let why = format!("option {option} is unknown to this server");
                return Err(No(rep::ERR_UNSUP, why));
            }
        }
        proto::put_option_reply(out, option, rep::ACK, &[]);
        Ok(Step::Continue)
    }

    fn start_tls(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<Step, No> {
        if !data.is_empty() {
            return Err(invalid("STARTTLS takes no data"));
        }
        match self.tls {
            TlsState::Active => Err(invalid("TLS is active already")),
            TlsState::Unavailable => {
                let why = "this server has no certificate, so no TLS".to_owned();
                Err(No(rep::ERR_POLICY, why))
            }
            TlsState::Offered | TlsState::Required => {
                proto::put_option_reply(out, opt::STARTTLS, rep::ACK, &[]);
                Ok(Step::StartTls)
            }
        }
    }

    fn find(exports: &dyn Catalogue, name: &str) -> Result<Offer, No> {
        exports.find(name).ok_or_else(|| {
            let why = if let Some(why) = exports.why_not(name) {
                why
            } else if name.is_empty() {
                "there is no default export; ask for one by name (LIST tells)".to_owned()
            } else {
                format!("there is no export named '{}'", shortened(name, 256))
            };
            No(rep::ERR_UNKNOWN, why)
        })
    }

    fn agreement(&self, offer: Offer) -> Box<Agreement> {
        let allocation = self.structured && self.context_of.as_deref() == Some(offer.name.as_str());
        Box::new(Agreement {
            offer,
            structured: self.structured,
            allocation,
        })
    }

    fn describe(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &dyn Catalogue,
        out: &mut Vec<u8>,
    ) -> Result<Step, No> {
        let malformed = || invalid("INFO and GO take a name, a count, and so many 16-bit numbers");
        let mut fields = Fields(data);
        let name = fields.string().ok_or_else(malformed)?;
        let count = usize::from(fields.u16().ok_or_else(malformed)?);
        let wanted = fields.bytes(count * 2).ok_or_else(malformed)?;
        if !fields.0.is_empty() {
            return Err(malformed());
        }
        let wants = |kind: u16| {
            wanted
                .chunks_exact(2)
                .any(|pair| pair == kind.to_be_bytes())
        };
        let agreement = self.agreement(Self::find(exports, name)?);
        let offer = &agreement.offer;

        let mut fact = |kind: u16, rest: &[&[u8]]| {
            let data = [&[&kind.to_be_bytes()[..]], rest].concat().concat();
            proto::put_option_reply(out, option, rep::INFO, &data);
        };
        fact(
            info::EXPORT,
            &[
                &offer.size.0.to_be_bytes(),
                &agreement.flags().to_be_bytes(),
            ],
        );
        if wants(info::NAME) {
            fact(info::NAME, &[offer.name.as_bytes()]);
        }
        if wants(info::DESCRIPTION) && !offer.description.is_empty() {
            fact(
                info::DESCRIPTION,
                &[shortened(&offer.description, 4096).as_bytes()],
            );
        }
        // Sent even where it was not asked for: the protocol allows it, and a client that reads it can
        // keep to whole sectors.
        fact(
            info::BLOCK_SIZE,
            &[
                &BLOCK_MIN.to_be_bytes(),
                &offer.block.to_be_bytes(),
                &offer.payload_max.to_be_bytes(),
            ],
        );
        proto::put_option_reply(out, option, rep::ACK, &[]);
        if option == opt::GO {
            return Ok(Step::Enter(agreement));
        }
        Ok(Step::Continue)
    }

    fn contexts(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &dyn Catalogue,
        out: &mut Vec<u8>,
    ) -> Result<(), No> {
        let setting = option == opt::SET_META_CONTEXT;
        if setting {
            self.context_of = None;
        }
        if !self.structured {
            return Err(invalid(
                "metadata contexts need structured replies: agree on those first",
            ));
        }
        let malformed = || invalid("expected an export's name, a count, and so many queries");
        let mut fields = Fields(data);
        let name = fields.string().ok_or_else(malformed)?;
        let count = fields.u32().ok_or_else(malformed)?;
        // No count to list means "all you know"; to set it means "none".
        let mut found = count == 0 && !setting;
        for _ in 0..count {
            let query = fields.string().ok_or_else(malformed)?;
            found |= query == ALLOCATION || (!setting && query == "base:");
        }
        if !fields.0.is_empty() {
            return Err(malformed());
        }
        let offer = Self::find(exports, name)?;
        if found {
            let id = if setting { ALLOCATION_ID } else { 0 };
            let reply = [&id.to_be_bytes()[..], ALLOCATION.as_bytes()].concat();
            proto::put_option_reply(out, option, rep::META_CONTEXT, &reply);
            if setting {
                self.context_of = Some(offer.name);
            }
        }
        Ok(())
    }

    /// The old way in: no refusal but hanging up.
    fn export_name(&self, data: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Step {
        if self.tls == TlsState::Required {
            return Step::Close("EXPORT_NAME before TLS, which is required here");
        }
        let offer = proto::text(data).filter(|_| !exports.closing());
        let Some(offer) = offer.and_then(|name| exports.find(name)) else {
            return Step::Close("EXPORT_NAME asked for an export that is not there");
        };
        let agreement = self.agreement(offer);
        out.extend(agreement.offer.size.0.to_be_bytes());
        out.extend(agreement.flags().to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Step::Enter(agreement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shelf(Vec<Offer>);

    impl Catalogue for Shelf {
        fn find(&self, name: &str) -> Option<Offer> {
            let first = if name.is_empty() {
                self.0.first()
            } else {
                None
            };
            first
                .or_else(|| self.0.iter().find(|offer| offer.name == name))
                .cloned()
        }
        fn list(&self) -> Vec<(String, String)> {
            let pair = |offer: &Offer| (offer.name.clone(), offer.description.clone());
            self.0.iter().map(pair).collect()
        }
    }

    fn device() -> Info {
        Info {
            name: "d".into(),
            size: Bytes::mib(1),
            physical_block: Bytes(512),
            max_io: Bytes::mib(1),
            volatile_cache: true,
            discards: true,
            rotational: true,
            read_only: false,
            crash_keeping: false,
        }
    }

    fn shelf() -> Shelf {
        let offer = |name: &str, read_only| {
            Offer::of_device(name, "a disk", &device(), read_only, 32 << 20)
        };
        Shelf(vec![offer("vol0", false), offer("vol1", true)])
    }

    fn fixed() -> Negotiation {
        Negotiation::new(3, TlsState::Unavailable).unwrap()
    }

    /// (type, data) of each reply, whose magic and option are checked.
    fn replies(out: &[u8], option: u32) -> Vec<(u32, Vec<u8>)> {
        let mut fields = Fields(out);
        let mut found = Vec::new();
        while !fields.0.is_empty() {
            assert_eq!(fields.u64(), Some(proto::OPTION_REPLY_MAGIC));
            assert_eq!(fields.u32(), Some(option));
            let kind = fields.u32().unwrap();
            let len = fields.u32().unwrap() as usize;
            found.push((kind, fields.bytes(len).unwrap().to_vec()));
        }
        found
    }

    fn ask(negotiation: &mut Negotiation, option: u32, data: &[u8]) -> (Step, Vec<(u32, Vec<u8>)>) {
        let mut out = Vec::new();
        let step = negotiation.option(option, data, &shelf(), &mut out);
        (step, replies(&out, option))
    }

    fn go(name: &str, wanted: &[u16]) -> Vec<u8> {
        let mut data = Vec::new();
        proto::put_string(&mut data, name);
        data.extend((wanted.len() as u16).to_be_bytes());
        for kind in wanted {
            data.extend(kind.to_be_bytes());
        }
        data
    }

    fn query(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = Vec::new();
        proto::put_string(&mut data, name);
        data.extend((queries.len() as u32).to_be_bytes());
        for query in queries {
            proto::put_string(&mut data, query);
        }
        data
    }

    #[test]
    fn go_tells_the_facts_and_enters() {
        let mut n = fixed();
        let wanted = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
        let (step, said) = ask(&mut n, opt::GO, &go("", &wanted));
        let Step::Enter(agreement) = step else {
            panic!("{step:?}")
        };
        assert_eq!(agreement.offer.name, "vol0");
        assert!(!agreement.structured && agreement.flags() & can::DF == 0);
        let kinds: Vec<u32> = said.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            kinds,
            [rep::INFO, rep::INFO, rep::INFO, rep::INFO, rep::ACK]
        );
        assert_eq!(said[1].1, [&[0, 1][..], b"vol0"].concat());
        assert_eq!(said[2].1, [&[0, 2][..], b"a disk"].concat());
        assert_eq!(said[3].1, [0, 3, 0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn info_describes_and_stays() {
        let mut n = fixed();
        assert_eq!(ask(&mut n, opt::STRUCTURED_REPLY, &[]).0, Step::Continue);
        let (step, said) = ask(&mut n, opt::INFO, &go("vol1", &[]));
        assert_eq!(step, Step::Continue);
        let flags = u16::from_be_bytes(said[0].1[10..12].try_into().unwrap());
        assert!(
            flags & can::READ_ONLY != 0 && flags & can::DF != 0,
            "{flags:#x}"
        );
        assert!(flags & (can::TRIM | can::WRITE_ZEROES) == 0, "{flags:#x}");
    }

    #[test]
    fn the_old_way_in_sends_zeroes_unless_the_client_declines() {
        for (flags, len) in [(1, 134), (3, 10), (0, 134)] {
            let mut n = Negotiation::new(flags, TlsState::Offered).unwrap();
            let mut out = Vec::new();
            let step = n.option(opt::EXPORT_NAME, b"vol1", &shelf(), &mut out);
            assert!(matches!(step, Step::Enter(_)));
            assert_eq!(out.len(), len);
        }
        let mut out = Vec::new();
        let step = fixed().option(opt::EXPORT_NAME, b"none", &shelf(), &mut out);
        assert!(matches!(step, Step::Close(_)) && out.is_empty());
    }

    #[test]
    fn unknown_oversized_and_malformed_options_are_refused_and_the_talk_goes_on() {
        let mut n = fixed();
        for option in [opt::EXTENDED_HEADERS, 4, 77] {
            let (step, said) = ask(&mut n, option, b"data");
            assert_eq!(
                (step, said[0].0, said.len()),
                (Step::Continue, rep::ERR_UNSUP, 1)
            );
        }
        let mut out = Vec::new();
        assert_eq!(n.oversized(opt::GO, 1 << 30, &mut out), Step::Continue);
        assert_eq!(replies(&out, opt::GO)[0].0, rep::ERR_TOO_BIG);
        for data in [
            &b""[..],
            &[0, 0, 0, 9],
            &[0xff; 4],
            &[0, 0, 0, 0, 0, 2, 0, 0],
        ] {
            let (step, said) = ask(&mut n, opt::GO, data);
            assert_eq!(
                (step, said[0].0, said.len()),
                (Step::Continue, rep::ERR_INVALID, 1)
            );
        }
        assert_eq!(ask(&mut n, opt::LIST, b"x").1[0].0, rep::ERR_INVALID);
        let (step, said) = ask(&mut n, opt::GO, &go("absent", &[]));
        assert_eq!((step, said[0].0), (Step::Continue, rep::ERR_UNKNOWN));
        assert_eq!(said[0].1, b"there is no export named 'absent'");
        assert!(matches!(
            ask(&mut n, opt::GO, &go("vol0", &[])).0,
            Step::Enter(_)
        ));
    }

    #[test]
    fn list_names_every_export() {
        let (_, said) = ask(&mut fixed(), opt::LIST, &[]);
        assert_eq!(said.len(), 3);
        assert_eq!(said[1], (rep::SERVER, b"\0\0\0\x04vol1a disk".to_vec()));
        assert_eq!(said[2], (rep::ACK, vec![]));
    }

    #[test]
    fn contexts_need_structured_replies_and_hold_for_one_export() {
        let mut n = fixed();
        let set = query("vol0", &[ALLOCATION]);
        assert_eq!(
            ask(&mut n, opt::SET_META_CONTEXT, &set).1[0].0,
            rep::ERR_INVALID
        );
        ask(&mut n, opt::STRUCTURED_REPLY, &[]);
        for (queries, found) in [
            (&[][..], 2),
            (&["base:"], 2),
            (&[ALLOCATION], 2),
            (&["qemu:x"], 1),
        ] {
            let (_, said) = ask(&mut n, opt::LIST_META_CONTEXT, &query("vol0", queries));
            assert_eq!(said.len(), found, "{queries:?}");
        }
        let (_, said) = ask(&mut n, opt::SET_META_CONTEXT, &set);
        assert_eq!(
            said[0],
            (rep::META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec())
        );
        let allocation = |n: &Negotiation, name: &str| {
            let mut out = Vec::new();
            let Step::Enter(a) = n
                .clone()
                .option(opt::GO, &go(name, &[]), &shelf(), &mut out)
            else {
                panic!("refused")
            };
            a.allocation
        };
        assert!(allocation(&n, "vol0") && allocation(&n, ""));
        assert!(!allocation(&n, "vol1"));
        ask(&mut n, opt::SET_META_CONTEXT, &query("vol0", &["base:"]));
        assert!(
            !allocation(&n, "vol0"),
            "a failed selection drops the earlier one"
        );
    }

    #[test]
    fn where_tls_is_required_nothing_is_revealed_before_it() {
        let mut n = Negotiation::new(3, TlsState::Required).unwrap();
        for option in [opt::LIST, opt::GO, opt::INFO, opt::STRUCTURED_REPLY, 99] {
            let (step, said) = ask(&mut n, option, &[]);
            assert_eq!((step, said[0].0), (Step::Continue, rep::ERR_TLS_REQD));
        }
        let mut out = Vec::new();
        let step = n
            .clone()
            .option(opt::EXPORT_NAME, b"vol0", &shelf(), &mut out);
        assert!(matches!(step, Step::Close(_)) && out.is_empty());
        assert_eq!(ask(&mut n, opt::STARTTLS, &[]).0, Step::StartTls);
        n.tls_started();
        assert_eq!(ask(&mut n, opt::STARTTLS, &[]).1[0].0, rep::ERR_INVALID);
        assert_eq!(ask(&mut n, opt::LIST, &[]).1.len(), 3);
        let mut plain = fixed();
        assert_eq!(ask(&mut plain, opt::STARTTLS, &[]).1[0].0, rep::ERR_POLICY);
    }

    #[test]
    fn abort_is_acknowledged_and_strange_flags_end_it() {
        let (step, said) = ask(&mut fixed(), opt::ABORT, &[]);
        assert!(matches!(step, Step::Close(_)));
        assert_eq!(said, [(rep::ACK, vec![])]);
        assert!(Negotiation::new(4, TlsState::Offered).is_err());
        let mut old = Negotiation::new(0, TlsState::Offered).unwrap();
        assert!(matches!(ask(&mut old, opt::LIST, &[]).0, Step::Close(_)));
    }
}
