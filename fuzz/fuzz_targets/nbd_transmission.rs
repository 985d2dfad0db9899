//! Any requests at all: what is allowed is in whole sectors, within the export, and agreed on.
#![no_main]

use front::nbd::proto::{Command, Fields, REQUEST_LEN, Request, Terms, can, cmd, flag, judge};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut fields = Fields(data);
    let (Some(flags), Some(sectors), Some(bits)) = (fields.u16(), fields.u32(), fields.u16()) else {
        return;
    };
    let terms = Terms {
        size: u64::from(sectors) * 512,
        flags: flags | can::HAS_FLAGS,
        structured: bits & 1 != 0,
        allocation: bits & 2 != 0,
        payload_max: 64 << 10 << (bits % 10),
    };
    while let Some(head) = fields.bytes(REQUEST_LEN) {
        let Some(request) = Request::parse(head.try_into().expect("28 bytes")) else { return };
        assert_eq!(request.encode(), head);
        let command = match judge(&request, &terms) {
            Ok(command) => command,
            Err(refusal) => {
                assert!(!refusal.why.is_empty() && refusal.errno.code() != 0);
                continue;
            }
        };
        let can = |bit: u16| terms.flags & bit != 0;
        let (at, len, writes) = match command {
            Command::Disconnect | Command::Flush => continue,
            Command::Read { at, len, whole } => {
                assert!(len <= terms.payload_max && (!whole || can(can::DF)));
                (at, len, false)
            }
            Command::Write { at, len, .. } => {
                assert!(len <= terms.payload_max && len == request.payload());
                (at, len, true)
            }
            Command::Trim { at, len, .. } => (at, len, true),
            Command::WriteZeroes { at, len, fast, .. } => {
                assert!(!fast || can(can::FAST_ZERO));
                (at, len, true)
            }
            Command::BlockStatus { at, len, .. } => {
                assert!(terms.allocation && len > 0);
                (at, len, false)
            }
            Command::Cache { at, len } => (at, len, false),
        };
        assert!(at % 512 == 0 && len % 512 == 0 && at + u64::from(len) <= terms.size);
        assert!(!writes || !can(can::READ_ONLY));
        assert!(request.flags & !(flag::FUA | 0x1e) == 0 && request.command <= cmd::BLOCK_STATUS);
    }
});
