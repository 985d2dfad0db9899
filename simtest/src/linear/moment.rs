//! Could all of this have been there at one moment?
//!
//! ```text
//! what a snapshot holds of each block -> from when until when the block can have held it -> do all of these meet?
//! ```
//!
//! A tag is there from some moment after its write was asked for; it is gone before a write is over that was asked for
//! when the tag was there for certain. So the bounds are never too narrow, and a snapshot that is refused here is torn.
//!
//! Always true:
//! 1. Whatever one disk held at a moment between the snapshot's call and its answer is not refused.

use std::collections::BTreeMap;

use super::{Act, Moment, Operation, Tag, ZERO};

/// What is known of a tag of a block.
#[derive(Clone, Copy)]
struct Written {
    began: Moment,
    /// It was there at this moment, or before.
    there: Moment,
}

/// The tags of one block.
fn written(operations: &[&Operation]) -> BTreeMap<Tag, Written> {
    let mut all = BTreeMap::new();
    for operation in operations {
        if let Act::Write(tag) = operation.act {
            let there = operation.ended.unwrap_or(Moment::MAX);
            let began = operation.began;
            all.insert(tag, Written { began, there });
        }
    }
    for operation in operations {
        if let (Act::Read(tag), Some(ended)) = (operation.act, operation.ended)
            && let Some(written) = all.get_mut(&tag)
        {
            written.there = written.there.min(ended);
        }
    }
    all
}

/// Whether a snapshot that was asked for at `called` and there at `answered` can hold these tags, by block, all at one
/// moment between. Blocks to which zeroes were written say nothing.
///
/// # Errors
/// Which two do not fit.
pub fn at_one_moment(
    operations: &[Operation],
    (called, answered): (Moment, Moment),
    holds: &[(u64, Tag)],
) -> Result<(), String> {
    let (mut least, mut most) = ((called, None), (answered, None));
    for (block, tag) in holds {
        let own: Vec<&Operation> = operations.iter().filter(|it| it.block == *block).collect();
        let all = written(&own);
        if all.contains_key(&ZERO) {
            continue;
        }
        let held = match all.get(tag) {
            Some(held) => *held,
            None if *tag == ZERO => Written { began: 0, there: 0 },
            None => return Err(format!("block {block}: {tag} was never written")),
        };
        if held.began > least.0 {
            least = (held.began, Some((*block, *tag)));
        }
        for later in all.values().filter(|later| later.began > held.there) {
            if later.there < most.0 {
                most = (later.there, Some((*block, *tag)));
            }
        }
    }
    if least.0 < most.0 {
        return Ok(());
    }
    let described = |what: Option<(u64, Tag)>, else_: &str| {
        what.map_or(else_.to_owned(), |(block, tag)| {
            format!("{tag} in block {block}")
        })
    };
    Err(format!(
        "the snapshot of {called}..{answered} is torn: {} was gone by {}, and {} was not there before {}",
        described(most.1, "what was there when it was answered"),
        most.0,
        described(least.1, "what was there when it was asked for"),
        least.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(block: u64, tag: Tag, began: Moment, ended: Option<Moment>) -> Operation {
        Operation {
            began,
            ended,
            block,
            act: Act::Write(tag),
            who: 0,
        }
    }

    /// One client writes 1 to block 1, 2 to block 2, 3 to block 1, one after the other.
    fn in_a_row() -> Vec<Operation> {
        vec![
            write(1, 1, 10, Some(20)),
            write(2, 2, 30, Some(40)),
            write(1, 3, 50, Some(60)),
        ]
    }

    #[test]
    fn what_was_there_at_some_moment_between_call_and_answer_is_taken() {
        let writes = in_a_row();
        for holds in [[0, 0], [1, 0], [1, 2], [3, 2]] {
            let holds = [(1, holds[0]), (2, holds[1])];
            assert_eq!(at_one_moment(&writes, (5, 90), &holds), Ok(()));
        }
    }

    #[test]
    fn a_later_write_without_the_one_before_is_torn() {
        let writes = in_a_row();
        let torn = at_one_moment(&writes, (5, 90), &[(1, 0), (2, 2)]);
        let message = torn.unwrap_err();
        assert!(
            message.contains("0 in block 1") && message.contains("2 in block 2"),
            "{message}"
        );
        assert!(at_one_moment(&writes, (5, 90), &[(1, 3), (2, 0)]).is_err());
    }

    #[test]
    fn what_came_after_the_answer_or_was_gone_before_the_call_is_refused() {
        let writes = in_a_row();
        assert!(at_one_moment(&writes, (5, 45), &[(1, 3), (2, 2)]).is_err());
        assert!(at_one_moment(&writes, (65, 90), &[(1, 1), (2, 2)]).is_err());
        assert!(at_one_moment(&writes, (5, 90), &[(1, 7)]).is_err());
    }

    #[test]
    fn a_write_that_was_not_answered_is_there_when_it_was_read() {
        let mut writes = in_a_row();
        writes.push(write(2, 4, 70, None));
        assert_eq!(at_one_moment(&writes, (5, 90), &[(1, 3), (2, 4)]), Ok(()));
        assert_eq!(at_one_moment(&writes, (75, 90), &[(1, 3), (2, 2)]), Ok(()));
        let read = Operation {
            act: Act::Read(4),
            ..write(2, 0, 71, Some(72))
        };
        writes.push(read);
        // Not answered, but seen: what came before it is gone by then, if it was there for certain.
        assert!(at_one_moment(&writes, (75, 90), &[(1, 3), (2, 2)]).is_err());
    }
}
