//! The one writer of a fast device's labels.
//!
//! ```text
//! a change -> changed (is there such an arrow?) -> both copies, durably -> the label in memory
//!
//! Detached  -> Attached    Opened     a cache was made
//! Attached  -> Attached    Opened, Slots, Closed
//! Failing   -> Attached    Opened     after a start that forgot every clean page
//! Attached  -> Failing     Attachment
//! Attached  -> Detached    Attachment
//! any       -> Abandoned   Attachment
//! ```
//!
//! Always true:
//! 1. Two changes never mix: each begins with what the one before it left.
//! 2. Nothing leads back from Abandoned, and from Failing only a new opening.

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use device::{Device, DeviceError, Op};
use env::sync::Semaphore;

use crate::attach::label::{Attachment, Label};

/// How a label may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The volume is being opened with this cache: the number of the attachment.
    Opened(u64),
    /// So many slots are in use.
    Slots(u32),
    /// Closed: the fingerprints are those of what the slow device has now.
    Closed,
    /// Other words on whether its contents count.
    Attachment(Attachment),
}

/// The label after `change`; `None` if there is no such arrow.
fn changed(label: &Label, change: Change) -> Option<Label> {
    let mut next = Label {
        closed: false,
        ..label.clone()
    };
    let may = match change {
        Change::Opened(generation) => {
            next.attachment = Attachment::Attached;
            next.generation = generation;
            label.attachment != Attachment::Abandoned
        }
        Change::Slots(slots) => {
            next.slots = slots;
            label.attachment == Attachment::Attached
        }
        Change::Closed => {
            next.closed = true;
            label.attachment == Attachment::Attached
        }
        Change::Attachment(attachment) => {
            next.attachment = attachment;
            match attachment {
                Attachment::Attached => false,
                Attachment::Failing | Attachment::Detached => {
                    label.attachment == Attachment::Attached || label.attachment == attachment
                }
                Attachment::Abandoned => true,
            }
        }
    };
    may.then_some(next)
}

/// The label of one fast device, as it was written last.
pub(crate) struct Labels {
    fast: Rc<dyn Device>,
    now: RefCell<Label>,
    turn: Rc<Semaphore>,
}

impl Labels {
    pub fn new(fast: Rc<dyn Device>, label: Label) -> Labels {
        Labels {
            fast,
            now: RefCell::new(label),
            turn: Semaphore::new(1),
        }
    }

    pub fn borrow(&self) -> Ref<'_, Label> {
        self.now.borrow()
    }

    /// Has the label say `attachment`, as [`Labels::change`] does it.
    pub async fn change_attachment(&self, attachment: Attachment) -> Result<(), DeviceError> {
        self.change(Change::Attachment(attachment)).await
    }

    /// Writes a changed label over both copies, durably.
    ///
    /// # Errors
    /// The device's: either of the two labels may count then; or `Gone` if the cache counts no more.
    pub async fn change(&self, change: Change) -> Result<(), DeviceError> {
        let _turn = self.turn.acquire(1).await;
        let next = changed(&self.now.borrow(), change);
        let Some(mut next) = next else {
            return Err(DeviceError::Gone {
                device: self.fast.info().name,
                op: Op::Write,
                why: format!(
                    "its cache is {} by now",
                    self.now.borrow().attachment.word()
                ),
            });
        };
        let answer = next.write_both(&self.fast).await;
        let mut now = self.now.borrow_mut();
        match (&answer, change) {
            (Ok(()), _) => *now = next,
            // A number that may be on the device is not given twice; and words that end a cache hold from
            // when they may have been written.
            (Err(_), Change::Attachment(attachment)) => {
                (now.sequence, now.attachment, now.closed) = (next.sequence, attachment, false);
            }
            (Err(_), _) => now.sequence = next.sequence,
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use base::{Bytes, Span};
    use device::Memory;
    use device::fault::{Book, Done, Injury, Rule};

    use super::*;

    fn label(attachment: Attachment) -> Label {
        let mut label = Label::layout(Bytes::mib(4), None, Bytes::mib(64), "v", 7).unwrap();
        label.attachment = attachment;
        label
    }

    #[test]
    fn no_arrow_leads_back_from_a_cache_that_was_given_up_or_fails() {
        let all = [
            Attachment::Attached,
            Attachment::Failing,
            Attachment::Detached,
            Attachment::Abandoned,
        ];
        let arrows = |change: Change| {
            let from = all
                .map(|attachment| changed(&label(attachment), change).map(|next| next.attachment));
            from.map(|to| {
                to.map_or('-', |attachment| {
                    attachment.word().chars().next().unwrap_or('?')
                })
            })
            .into_iter()
            .collect::<String>()
        };
        // From attached, failing, detached, given up; to the first letter of the same words.
        assert_eq!(arrows(Change::Opened(3)), "aaa-");
        assert_eq!(arrows(Change::Slots(64)), "a---");
        assert_eq!(arrows(Change::Closed), "a---");
        assert_eq!(arrows(Change::Attachment(Attachment::Attached)), "----");
        assert_eq!(arrows(Change::Attachment(Attachment::Failing)), "ff--");
        assert_eq!(arrows(Change::Attachment(Attachment::Detached)), "d-d-");
        assert_eq!(arrows(Change::Attachment(Attachment::Abandoned)), "gggg");
    }

    #[test]
    fn a_change_that_met_a_failing_cache_leaves_it_failing() {
        env::Runtime::simulated(1).block_on(async {
            let fast: Rc<dyn Device> = Memory::new("ssd0", Bytes::mib(4));
            let labels = Rc::new(Labels::new(Rc::clone(&fast), label(Attachment::Attached)));
            // Both begin in the same moment; one is first.
            let other = Rc::clone(&labels);
            let failing =
                env::spawn(
                    async move { other.change(Change::Attachment(Attachment::Failing)).await },
                );
            env::yield_now().await;
            let grown = labels.change(Change::Slots(100)).await;
            assert_eq!(failing.await, Ok(()));
            let said = grown.unwrap_err().to_string();
            assert_eq!(
                said,
                "cannot write on ssd0: it is gone (its cache is failing by now)"
            );
            let found = Label::read(&fast).await.unwrap().unwrap();
            assert_eq!(found.attachment, Attachment::Failing);
        });
    }

    #[test]
    fn a_label_that_could_not_be_written_is_followed_by_a_greater_number() {
        env::Runtime::simulated(2).block_on(async {
            let memory = Memory::new("ssd0", Bytes::mib(4));
            let book = Book::new(env::rng("faults"));
            let fast: Rc<dyn Device> = book.wrap(memory);
            let labels = Labels::new(Rc::clone(&fast), label(Attachment::Attached));
            labels.change(Change::Opened(1)).await.unwrap();
            let before = labels.borrow().sequence;
            let rule = Rule::new(Injury::Error(Done::Part)).on(&[Op::Write]);
            book.add(rule.within(Span::bytes(0, 8192)).once());
            assert!(
                labels
                    .change(Change::Attachment(Attachment::Detached))
                    .await
                    .is_err()
            );
            assert_eq!(
                labels.borrow().attachment,
                Attachment::Detached,
                "it may say so"
            );
            labels
                .change(Change::Attachment(Attachment::Abandoned))
                .await
                .unwrap();
            assert!(labels.borrow().sequence >= before + 3);
            let found = Label::read(&fast).await.unwrap().unwrap();
            assert_eq!(found.attachment, Attachment::Abandoned);
        });
    }
}
