//! Any options at all: each is answered once and well-formed, and nothing is revealed before required TLS.
#![no_main]

use base::Bytes;
use device::Info;
use front::nbd::negotiate::{Catalogue, Negotiation, Offer, Step, TlsState};
use front::nbd::proto::{self, Fields, OPTION_LEN, opt, rep};
use libfuzzer_sys::fuzz_target;

struct Shelf(Vec<Offer>);

impl Catalogue for Shelf {
    fn find(&self, name: &str) -> Option<Offer> {
        let first = self.0.first().filter(|_| name.is_empty());
        first.or_else(|| self.0.iter().find(|offer| offer.name == name)).cloned()
    }
    fn list(&self) -> Vec<(String, String)> {
        self.0.iter().map(|offer| (offer.name.clone(), offer.description.clone())).collect()
    }
}

fn shelf() -> Shelf {
    let info = Info {
        name: "disk".into(),
        size: Bytes::mib(1),
        physical_block: Bytes(4096),
        max_io: Bytes::mib(1),
        volatile_cache: true,
        discards: true,
        rotational: false,
        read_only: false,
    };
    let offer = |name, read_only| Offer::of_device(name, "a disk", &info, read_only, 32 << 20);
    Shelf(vec![offer("vol0", false), offer("vol1", true)])
}

/// The types of the replies in `out`, which must be whole and to this option.
fn kinds(out: &[u8], option: u32) -> Vec<u32> {
    let mut fields = Fields(out);
    let mut kinds = Vec::new();
    while !fields.0.is_empty() {
        assert_eq!(fields.u64(), Some(proto::OPTION_REPLY_MAGIC));
        assert_eq!(fields.u32(), Some(option));
        kinds.push(fields.u32().expect("a type"));
        let len = fields.u32().expect("a length");
        fields.bytes(len as usize).expect("as many bytes as it says");
    }
    kinds
}

fuzz_target!(|data: &[u8]| {
    let mut fields = Fields(data);
    let (Some(flags), Some(tls)) = (fields.u32(), fields.bytes(1)) else { return };
    let states = [TlsState::Unavailable, TlsState::Offered, TlsState::Required, TlsState::Active];
    let tls = states[usize::from(tls[0] % 4)];
    let Ok(mut negotiation) = Negotiation::new(flags, tls) else { return };
    let exports = shelf();
    let mut closed_door = tls == TlsState::Required;
    while let Some(head) = fields.bytes(OPTION_LEN) {
        let Some((option, len)) = proto::option_head(head.try_into().expect("16 bytes")) else { return };
        let mut out = Vec::new();
        let step = match fields.bytes(len as usize) {
            Some(data) => negotiation.option(option, data, &exports, &mut out),
            None => negotiation.oversized(option, len, &mut out),
        };
        match &step {
            // ABORT is acknowledged before the end; all else that ends it cannot be answered at all.
            Step::Close(_) if out.is_empty() => return,
            Step::Close(_) => assert_eq!(option, opt::ABORT),
            Step::Enter(_) if option == opt::EXPORT_NAME => assert!([10, 134].contains(&out.len())),
            _ => {
                let kinds = kinds(&out, option);
                let finals = kinds.iter().filter(|&&kind| kind == rep::ACK || kind & rep::ERROR != 0);
                assert_eq!(finals.count(), 1, "{kinds:x?}");
                let last = kinds.last().copied();
                assert!(last.is_some_and(|kind| kind == rep::ACK || kind & rep::ERROR != 0));
                if closed_door && kinds.contains(&rep::ACK) {
                    assert!([opt::STARTTLS, opt::ABORT].contains(&option), "told before TLS");
                }
            }
        }
        match step {
            Step::Continue => {}
            Step::StartTls => {
                closed_door = false;
                negotiation.tls_started();
            }
            Step::Enter(agreement) => {
                assert!(!closed_door && (!agreement.allocation || agreement.structured));
                return;
            }
            Step::Close(_) => return,
        }
    }
});
